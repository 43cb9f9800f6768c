# SPDX-License-Identifier: Apache-2.0
"""Ranks without a common transport get an error that says what each rank allows.
Usage: transports_that_differ_test.py PATH_OF_RONDO"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import QUICK, RONDO, clean_environment, main  # noqa: E402

BENCH = ["bench", "-b", "8", "-e", "8", *QUICK]


class TransportsThatDiffer(unittest.TestCase):
    def test_transports_that_differ(self):
        """The message of each rank says what both ranks allow."""
        with tempfile.TemporaryDirectory() as folder:
            place = {"RONDO_SIZE": "2", "RONDO_RENDEZVOUS": f"file://{folder}/place"}
            ranks = [subprocess.Popen([RONDO, *BENCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=clean_environment(RONDO_RANK=str(rank), RONDO_TRANSPORT=transport, **place))
                     for rank, transport in enumerate(["tcp", "shm"])]
            errors = [process.communicate(timeout=120)[1] for process in ranks]
        self.assertNotIn(0, [process.returncode for process in ranks])
        wanted = ("the ranks have different settings: RONDO_TRANSPORT: tcp on rank 0, shm on rank 1. "
                  "Set the same on all ranks, in the variable or in Options")
        for text in errors:
            self.assertIn(wanted, text)


if __name__ == "__main__":
    main()
