# SPDX-License-Identifier: Apache-2.0
"""What the tests over hosts share. A test program ends with status 77 (skipped) and says why where there can be no hosts."""

import os
import sys
import unittest

from namespaces import SKIPPED, Network, Unable, become_able

SECONDS = 120  # no job here takes so long: longer is a hang


def program(number: int) -> str:
    """Argument `number` of the test program, the path of a program under test."""
    return os.path.abspath(PROGRAMS[number - 1])


PROGRAMS: list[str] = []


class HostCase(unittest.TestCase):
    """A test case with hosts of its own, `hosts` of them on links of these rates."""

    hosts = 2
    rates = ["1gbit"]

    @classmethod
    def setUpClass(cls) -> None:
        cls.network = Network(cls.hosts, cls.rates)
        cls.addClassCleanup(cls.network.close)

    def assert_ended(self, job, status: int = 0, but: tuple[int, ...] = ()) -> None:
        for rank in job.finish(SECONDS, but):
            self.assertEqual(rank.status, status, job.story())


def main(programs: int) -> None:
    """Usage of a test program: FILE PROGRAM... [unittest arguments]"""
    PROGRAMS[:] = sys.argv[1:1 + programs]
    try:
        become_able()
        Network(2, ["1gbit"]).close()
    except Unable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    del sys.argv[1:1 + programs]
    unittest.main(module="__main__", verbosity=2)
