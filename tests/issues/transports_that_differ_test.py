# SPDX-License-Identifier: Apache-2.0
"""Ranks that allow no common transport are told what each side allows. Usage: transports_that_differ_test.py PATH_OF_RONDO"""

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
        """Each message says what both sides allow."""
        with tempfile.TemporaryDirectory() as folder:
            place = {"RONDO_SIZE": "2", "RONDO_RENDEZVOUS": f"file://{folder}/place"}
            ranks = [subprocess.Popen([RONDO, *BENCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=clean_environment(RONDO_RANK=str(rank), RONDO_TRANSPORT=transport, **place))
                     for rank, transport in enumerate(["tcp", "shm"])]
            errors = [process.communicate(timeout=120)[1] for process in ranks]
        self.assertNotIn(0, [process.returncode for process in ranks])
        remedy = "set RONDO_TRANSPORT (Options::transports) alike on all ranks"
        found = [f"rank 0 cannot reach rank 1: tcp: rank 1 allows only shm; {remedy}" in errors[0],
                 f"rank 1 cannot reach rank 0: shm: rank 0 allows only tcp; {remedy}" in errors[1]]
        # The other may have heard of it first from the one that found it.
        self.assertIn(True, found, errors)
        for text in errors:
            self.assertIn(remedy, text)


if __name__ == "__main__":
    main()
