# SPDX-License-Identifier: Apache-2.0
"""The rondo program without a network, and without /proc.
Usage: unusual_places_test.py PATH_OF_RONDO [sanitizers]"""

import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import QUICK, RONDO, clean_environment, main, rows  # noqa: E402

BENCH = ["bench", "-b", "8", "-e", "8", *QUICK]
SKIPPED = 77


def unshare(*flags):
    """Returns a prefix for commands, or None where unshare does not work."""
    if shutil.which("unshare") is None:
        return None
    command = ["unshare", *flags]
    works = subprocess.run([*command, "true"], capture_output=True, timeout=60).returncode == 0
    return command if works else None


NETWORK, MOUNTS = unshare("-n"), unshare("-m")


class UnusualPlaces(unittest.TestCase):
    def run_in(self, prefix, *command):
        return subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=120, env=clean_environment())

    def test_a_loopback_interface_that_is_down(self):
        told = "; not up: lo (ip link set lo up)\n"
        bench = self.run_in(NETWORK, RONDO, *BENCH, "--ranks", "2")
        self.assertEqual((bench.returncode, bench.stdout), (2, ""))
        self.assertEqual(bench.stderr, "rondo bench: no network interface matches 'lo'; there are: none" + told)
        alone = self.run_in([*NETWORK, "env", "RONDO_RANK=0", "RONDO_SIZE=2", "RONDO_RENDEZVOUS=tcp://127.0.0.1:4711"], RONDO, *BENCH)
        self.assertEqual(alone.returncode, 3 if "rank 0" in alone.stderr else 2)
        self.assertIn("no network interface is up" + told, alone.stderr)

    def test_without_proc(self):
        without = [*MOUNTS, "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
        for transport in "shm", "tcp":
            result = self.run_in(without, RONDO, *BENCH, "--ranks", "2", "--transport", transport)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(len(rows(result.stdout)), 2)
            self.assertIn(f"over {transport}, 2 ranks", result.stdout)
        self.assertEqual(self.run_in(without, RONDO, "info").returncode, 0)
        # Starts the program through PATH: then only the kernel knows its whole path.
        folder = pathlib.Path(RONDO).parent
        result = self.run_in([*without, "env", f"PATH={folder}:/usr/bin:/bin"], pathlib.Path(RONDO).name, *BENCH, "--ranks", "2")
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    if NETWORK is None or MOUNTS is None:
        print("skipped: this user may not make namespaces")
        sys.exit(SKIPPED)
    if "sanitizers" in sys.argv:
        sys.argv.remove("sanitizers")
        UnusualPlaces.test_without_proc = unittest.skip("sanitizers need /proc")(UnusualPlaces.test_without_proc)
    main()
