# SPDX-License-Identifier: Apache-2.0
"""The rondo program without a network, without /proc, and in a sandbox.
Usage: unusual_places_test.py PATH_OF_RONDO [sanitizers]"""

import ctypes
import errno
import os
import pathlib
import shutil
import struct
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


def refuse_affinity():
    """The kernel refuses sched_getaffinity to this process from now on, as a strict sandbox does."""
    number = {"x86_64": 204, "aarch64": 123}[os.uname().machine]
    # BPF: load the number of the call; unless it is this one, skip what refuses it.
    code = b"".join(struct.pack("=HBBI", *one) for one in [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)])
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP


class UnusualPlaces(unittest.TestCase):
    def run_in(self, prefix, *command, before=None):
        return subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=120, env=clean_environment(), preexec_fn=before)

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

    def test_where_the_affinity_mask_is_not_told(self):
        info = self.run_in([], RONDO, "info", before=refuse_affinity)
        self.assertEqual(info.returncode, 0, info.stderr)
        bench = self.run_in([], RONDO, *BENCH, "--ranks", "2", before=refuse_affinity)
        self.assertEqual((bench.returncode, bench.stderr), (0, ""))
        self.assertIn("# rank 0 is not bound", bench.stdout)
        bound = self.run_in([], RONDO, "run", "-n", "1", "--bind", "core", "--", "true", before=refuse_affinity)
        self.assertEqual(bound.returncode, 2)
        self.assertIn("--bind: hwloc cannot find out which processors there are: sched_getaffinity: Operation not permitted; give --bind none", bound.stderr)


if __name__ == "__main__":
    if NETWORK is None or MOUNTS is None:
        print("skipped: this user may not make namespaces")
        sys.exit(SKIPPED)
    if "sanitizers" in sys.argv:
        sys.argv.remove("sanitizers")
        UnusualPlaces.test_without_proc = unittest.skip("sanitizers need /proc")(UnusualPlaces.test_without_proc)
        UnusualPlaces.test_where_the_affinity_mask_is_not_told = unittest.skip("sanitizers ask for the mask")(UnusualPlaces.test_where_the_affinity_mask_is_not_told)
    main()
