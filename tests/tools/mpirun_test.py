# SPDX-License-Identifier: Apache-2.0
"""rondo bench under the mpirun of Open MPI and of MPICH on this host.
Usage: mpirun_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import shutil
import subprocess
import sys
import unittest

from program import QUICK, RONDO, clean_environment, main, rows

SKIPPED = 77  # the exit status with which a test tells meson that it could not run
OPENMPI, MPICH = "mpirun.openmpi", "mpirun.mpich"


def launcher(name, ranks):
    """Returns mpirun with its arguments. Skips the test when it is not installed."""
    if shutil.which(name) is None:
        raise unittest.SkipTest(f"{name} is not installed")
    more = []
    if name == OPENMPI:
        more = ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    return [name, *more, "-n", str(ranks)]


class Mpirun(unittest.TestCase):
    def run_under(self, name, ranks, *arguments):
        return subprocess.run([*launcher(name, ranks), RONDO, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env=clean_environment())

    def check_bench(self, name):
        for ranks in 2, 4:
            for operation, transport, factor in ("all_reduce", "tcp", 512), ("all_gather", "shm", 2048), ("sendrecv", "tcp", 2048):
                with self.subTest(ranks=ranks, operation=operation):
                    result = self.run_under(name, ranks, "bench", operation, "--transport", transport, "-b", 64, "-e", "1M", "-f", factor, *QUICK)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    # Only one table, not one for each rank: the ranks have joined.
                    self.assertEqual(result.stdout.count("# rondo "), 1, result.stdout)
                    self.assertIn(f": {operation} over {transport}, {ranks} ranks, ", result.stdout)
                    self.assertIn("# Wrong elements       : 0 OK", result.stdout)
                    self.assertGreaterEqual(len(rows(result.stdout)), 2)

    def check_failure(self, name):
        """A usage error ends the job with a message and a status."""
        result = self.run_under(name, 2, "bench", "-r", 2, "reduce")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--root 2", result.stderr + result.stdout)

    def test_bench_openmpi(self):
        self.check_bench(OPENMPI)

    def test_bench_mpich(self):
        self.check_bench(MPICH)

    def test_failure_openmpi(self):
        self.check_failure(OPENMPI)

    def test_failure_mpich(self):
        self.check_failure(MPICH)


if __name__ == "__main__":
    if shutil.which(OPENMPI) is None and shutil.which(MPICH) is None:
        print(f"skipped: neither {OPENMPI} nor {MPICH} is installed (Debian: openmpi-bin, mpich)")
        sys.exit(SKIPPED)
    main()
