# SPDX-License-Identifier: Apache-2.0
"""How many iterations a turn gets, with a clock that only a library moves; and a rank that has
ended before the driver looks. Argument: bench/peers."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, sys.argv.pop())

import group
import rounds


class Library:
    """A group of two ranks. Takes `wakes` seconds for a command, and `lasts` for an iteration, of
    which it times a tenth."""

    name, algorithms = "library", ["default"]

    def __init__(self, wakes: float, lasts: float, seconds: float = 20):
        self.wakes, self.lasts, self.seconds = wakes, lasts, seconds
        self.now = 0.0
        self.turns: list[tuple[int, float]] = []  # iterations and seconds

    def command(self, line: str) -> list[str]:
        what, *words = line.split()
        if what == "check":
            return ["right"] * 2
        warm_up, iterations = int(words[2]), int(words[3])
        took = self.wakes + self.lasts * (warm_up + iterations)
        self.now += took
        self.turns.append((iterations, took))
        return [" ".join(["times", *[str(int(self.lasts * 1e8))] * iterations])] * 2


def turns_of(library: Library, seconds: float) -> list[tuple[int, float]]:
    """What a row of three turns took, without those that find the number of iterations."""
    candidate = rounds.Candidate(library, "default")
    with mock.patch.object(rounds, "monotonic", lambda: library.now):
        candidate.get_ready(8, seconds)
        library.turns.clear()
        for _ in range(3):
            candidate.turn(8, seconds)
    return library.turns


class Iterations(unittest.TestCase):
    def test_a_turn_lasts_as_long_as_asked(self):
        # From small calls, of which the untimed part takes longest, to large ones.
        for lasts in 1e-6, 1e-5, 1e-3, 1e-2:
            for _, took in turns_of(Library(0.002, lasts), 0.1):
                with self.subTest(lasts):
                    self.assertGreater(took, 0.05)
                    self.assertLess(took, 0.12)

    def test_their_number_is_bounded(self):
        self.assertEqual({iterations for iterations, _ in turns_of(Library(0.002, 1e-8), 0.1)}, {200_000})
        self.assertEqual({iterations for iterations, _ in turns_of(Library(0.002, 1), 0.1)}, {5})

    def test_slow_libraries_get_few_enough_for_the_deadline(self):
        for _, took in turns_of(Library(0.002, 4), 0.1):
            self.assertLess(took, 20)


class Start(unittest.TestCase):
    def test_a_rank_that_has_connected_and_is_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            job = group.Group("library", 1, Path(folder), 5)
            self.addCleanup(job.stop)
            job.start([])
            (Path(folder) / "log").write_text("cannot find the network\n")
            subprocess.run([sys.executable, "-c", f"import socket; socket.socket(socket.AF_UNIX).connect({str(job.control)!r})"], check=True)
            with self.assertRaisesRegex(group.Failure, "does not start: cannot find the network"):
                job.wait_until_ready()


if __name__ == "__main__":
    unittest.main()
