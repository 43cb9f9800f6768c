# SPDX-License-Identifier: Apache-2.0
"""The first lines of the log, variables that Rondo does not know, and a left-over RONDO_RANK.
Usage: log_and_names_test.py PATH_OF_RONDO"""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools"))
from program import QUICK, main, rondo  # noqa: E402

BENCH = ["all_reduce", "-b", "1K", "-e", "1K", *QUICK]


class Names(unittest.TestCase):
    def test_unknown_names_warn_once_with_the_nearest(self):
        from program import RONDO
        result = rondo("run", "-n", 2, "--", RONDO, "bench", *BENCH, RONDO_TRANPORT="tcp", RONDO_SPEED="9")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in result.stderr.splitlines() if "Rondo has no variable" in line]
        # Only the first rank of the host prints them.
        self.assertEqual(sorted(lines), [
            "rondo warning: Rondo has no variable RONDO_SPEED; docs/reference/environment.md lists them",
            "rondo warning: Rondo has no variable RONDO_TRANPORT; did you mean RONDO_TRANSPORT?"])

    def test_names_that_are_read_do_not_warn(self):
        result = rondo("info", RONDO_ISA="scalar", RONDO_LOCAL_RANK="0", RONDO_LOG="warning", RONDO_TEST_ANY="1",
                       RONDO_DEPTH="2")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_rank_that_is_left_over_is_told(self):
        launcher = dict(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="2", PMIX_NAMESPACE="x")
        result = rondo("info", RONDO_RANK="0", **launcher)
        self.assertEqual(result.stderr, "rondo warning: RONDO_RANK=0 is used, although Open MPI says rank 1. "
                                        "Unset it (env -u RONDO_RANK -u RONDO_SIZE) if it is left over\n")
        everything = rondo("info", RONDO_RANK="1", RONDO_SIZE="4", RONDO_RENDEZVOUS="tcp://127.0.0.1:1", **launcher)
        self.assertIn("RONDO_SIZE=4 is used, although Open MPI says 2 ranks", everything.stderr)
        # A rank that is named twice alike, or rondo run inside another launcher, is no mistake.
        self.assertEqual(rondo("info", RONDO_RANK="1", **launcher).stderr, "")
        self.assertEqual(rondo("info", RONDO_RANK="0", RONDO_SIZE="1", RONDO_LOCAL_RANK="0", **launcher).stderr, "")


class Log(unittest.TestCase):
    def lines(self, level, **changes):
        from program import RONDO
        result = rondo("run", "-n", 2, "--", RONDO, "bench", *BENCH, RONDO_LOG=level, **changes)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_info(self):
        text = self.lines("info", RONDO_TRANSPORT="tcp", RONDO_ALGORITHM="ring")
        for wanted in (
                r"^rondo info: Rondo \d+\.\d+\.\d+: 2 ranks on 1 host \(ranks 0, 1\); met at file://\S+, as RONDO_RANK says; joined in [\d.]+ s$",
                r"^rondo info: planner's constants are the defaults \(RONDO_MEASURE=1 measures within a host too\): .* GB/s between hosts$",
                r"^rondo info: rank 0 of 2: process \d+ on \S+, 2 ranks (?:use|share) \d+ cores?, kernels \w+; settings .*RONDO_TRANSPORT=tcp .*RONDO_ALGORITHM=ring",
                r"^rondo info: rank 1 of 2: process \d+ on \S+, 2 ranks (?:use|share) \d+ cores?, kernels \w+; settings ",
                r"^rondo info: rank 0 of 2: tcp to rank 1, the nearest; to rank 1: 1 path to 127\.0\.0\.1:\d+$",
                r"^rondo info: rank 0 of 2: all_reduce of 1 KiB: ring over tcp, segments of .*, \d+ in flight$"):
            self.assertEqual(len(re.findall(wanted, text, re.M)), 1, f"{wanted}\n{text}")
        self.assertNotIn("rondo debug", text)

    def test_debug_tells_of_every_peer_and_rank(self):
        text = self.lines("debug", RONDO_TRANSPORT="tcp")
        for rank in 0, 1:
            self.assertRegex(text, rf"(?m)^rondo debug: rank {rank} of 2: rank {1 - rank} over tcp, ")
        self.assertRegex(text, r"(?m)^rondo debug: rank 1 of 2: all_reduce of 1 KiB: ")

    def test_a_warning_level_says_nothing_of_it(self):
        self.assertEqual(self.lines("warning"), "")


main()
