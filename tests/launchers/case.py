# SPDX-License-Identifier: Apache-2.0
"""The three ends of a preflight that every example must have."""

import os
import sys
import unittest

from stage import Run, Stage, enter, on

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cases import draws, heed_signals  # noqa: E402

# In the set change each example is started once, with one of its ends, which the seed draws.
one_end = draws(1, "test_passed", "test_missed", "test_killed")

# One row of 256 KiB, both forms, and a threshold that a link of 1 Gbit/s reaches even on a busy
# machine, or can never reach.
GOOD, TOO_MUCH = "0.00001", "100"
SHORT, LONG = "256K", "64M"
MISSED = "256 KiB f32 sum"
# The last line before the first row: all ranks have joined, and are measuring.
MEASURING = "(GB/s)"
VICTIM = 2

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}

PROGRAM = ""


def bench(size: str = SHORT, threshold: str = GOOD) -> list[str]:
    return ["rondo", "bench", "-b", size, "-e", size, "--min-bandwidth", threshold]


QUICK = [*bench(), "-n", "3", "--no-ceiling"]


class LauncherCase(unittest.TestCase):
    hosts = ["node0", "node1", "node2", "node3"]
    daemons = []  # functions of daemons.py that start them; with any there are no stand-ins

    @classmethod
    def setUpClass(cls) -> None:
        cls.stage = Stage(cls.hosts, PROGRAM, stand_ins=not cls.daemons)
        cls.addClassCleanup(cls.stage.close)
        for start in cls.daemons:
            cls.addClassCleanup(start(cls.stage).close)

    def launch(self, size: str, threshold: str) -> Run:
        """Starts the example with these values for its bytes and its threshold."""
        raise NotImplementedError

    def check_passed(self, ranks: int = 4) -> str:
        return self.check_run(self.launch(SHORT, GOOD), ranks)

    def check_run(self, run: Run, ranks: int) -> str:
        """All ranks of a run of rondo bench pass, and its output is returned."""
        with run:
            statuses = run.finish()
            self.assertEqual(set(statuses), {0}, run.output)
            # One table, not one for each rank: the ranks have joined.
            self.assertEqual(run.output.count("# rondo "), 1, run.output)
            self.assertIn(f"tcp, {ranks} ranks", run.output)
            self.assertIn("# Wrong elements       : 0 OK", run.output)
            return run.output

    def check_missed(self) -> tuple[list[int], str]:
        with self.launch(SHORT, TOO_MUCH) as run:
            statuses = run.finish()
            self.assertIn(MISSED, run.output)
            self.assertIn(f"below --min-bandwidth {TOO_MUCH}", run.output)
            return statuses, run.output

    def check_killed(self, ranks: int = 4, says: str = f"lost rank {VICTIM}") -> list[int]:
        """finish() fails if anything is left."""
        with self.launch(LONG, GOOD) as run:
            run.until_said(MEASURING)
            self.assertEqual(sorted(run.ranks()), list(range(ranks)), run.output)
            run.kill(VICTIM)
            statuses = run.finish()
            self.assertNotEqual(set(statuses), {0}, run.output)
            self.assertRegex(run.output, says)
            return statuses


def main() -> None:
    """Usage of a test program: FILE PATH_OF_RONDO [unittest arguments]"""
    global PROGRAM
    heed_signals()
    enter()
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__", verbosity=2)
