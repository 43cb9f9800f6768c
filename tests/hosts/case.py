# SPDX-License-Identifier: Apache-2.0
"""What the tests with hosts share. Where there can be no hosts, a test program says why and ends
with status 77 (skipped)."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from namespaces import SKIPPED, Network, Unable, become_able  # noqa: E402

SECONDS = 120  # no job here takes this long: a longer one hangs


def program(number: int) -> str:
    """The path of a program under test: argument `number` of the test program."""
    return os.path.abspath(PROGRAMS[number - 1])


PROGRAMS: list[str] = []


class HostCase(unittest.TestCase):
    """A test case with its own network: `hosts` hosts, each with a link of each of these rates."""

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
