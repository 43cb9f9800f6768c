# SPDX-License-Identifier: Apache-2.0
"""The percentages of rondo bench: rows and footer agree on the ceilings, and the footer explains
percentages above 100.
Usage: one_ceiling_test.py PATH_OF_RONDO"""

import itertools
import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import cells, drawn_of, main, rondo  # noqa: E402


class OneCeiling(unittest.TestCase):
    def measured(self, *flags, ranks=2):
        """Runs a benchmark. Returns its table and the rows of its JSON file."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            result = rondo("bench", *flags, "--ranks", ranks, "-b", "4K", "-e", "1M", "-f", 16, "-n", 5, "--json", path, timeout=120)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout, json.loads(path.read_text())["results"]

    def check_agreement(self, table, results, ceiling_of):
        self.assertEqual({row["ceiling_of"] for row in results}, {ceiling_of})
        self.assertRegex(table, rf"(?m)^#       \(B\).* {ceiling_of[:5]}\b")
        # On a busy machine a row may be so much faster than the sockets were that these are no ceiling.
        exceeds = [row["ceiling_of"] == "sockets" and row["busbw"] > 1.5 * row["ceiling"] for row in results]
        shown = [row["ceil"] for row in cells(table)]
        self.assertEqual([cell == "-" for cell in shown], exceeds)
        for row, cell in zip(results, shown):
            if cell != "-":
                self.assertAlmostEqual(float(cell), row["ceiling_percent"], delta=0.501)  # it has three places
        self.assertIs("No %ceil" in table, any(exceeds))
        results = [row for row, above in zip(results, exceeds) if not above]
        percents = [row["ceiling_percent"] for row in results]
        self.assertGreater(min(percents), 0)
        footer = re.search(r"(?m)^# Ceiling              : ([0-9.]+) to ([0-9.]+) GB/s(?:; %ceil on average ([0-9.]+), at most ([0-9.]+))?$", table)
        least, most = map(float, footer.groups()[:2])
        self.assertAlmostEqual(least, min(row["ceiling"] for row in results), delta=1e-4)
        self.assertAlmostEqual(most, max(row["ceiling"] for row in results), delta=1e-4)
        # A busy machine may exceed what it reached a moment ago: then the footer counts these rows apart.
        below = [percent for percent in percents if percent < 100.5]
        self.assertIs(footer[3] is None, not below)
        if below:
            self.assertAlmostEqual(float(footer[3]), sum(below) / len(below), delta=0.06)
            self.assertAlmostEqual(float(footer[4]), max(below), delta=0.06)
        told = re.search(r"(?m)^# Above 100 %ceil      : (\d+) of (\d+), up to ([0-9.]+) times the ceiling:\n#   .+$", table)
        above = len(percents) - len(below)
        self.assertEqual(told.groups()[:2] if told else None, (str(above), str(len(percents))) if above else None)
        if told:
            self.assertAlmostEqual(100 * float(told[3]), max(percents), delta=0.51)

    def test_ordinary_memory(self):
        """An all-reduce is compared with one that does what it must, and nothing else."""
        for flags, ranks in drawn_of(itertools.product(([], ["--algorithm", "ring"], ["-c", 0], ["--datatype", "bf16"]), (2, 3)), 2):
            with self.subTest(flags=flags, ranks=ranks):
                table, results = self.measured(*flags, ranks=ranks)
                self.check_agreement(table, results, "cores")
                for row in results:
                    self.assertAlmostEqual(row["ceiling_percent"], 100 * row["busbw"] / row["ceiling"], delta=1e-3)

    def test_memory_that_ranks_share(self):
        """Traffic is what every algorithm must load and store, whatever its buffers and slots."""
        def is_possible(case):
            (operation, _), flags = case
            return (operation == "all_gather" or flags[:1] != ["--algorithm"]) and (operation != "all_reduce" or flags in (["--allocate"], ["-m", 2]))

        operations = ("all_reduce", 4), ("reduce", 3), ("all_gather", 4), ("all_to_all", 4)
        ways = [], ["--allocate"], ["--algorithm", "ring"], ["-m", 2]
        for (operation, bytes_moved), flags in drawn_of(filter(is_possible, itertools.product(operations, ways)), 2):
            with self.subTest(operation=operation, flags=flags):
                table, results = self.measured(operation, *flags)
                self.check_agreement(table, results, "memcpy")
                for row in results:
                    if row["in_place"]:
                        continue
                    rate = bytes_moved * row["bytes"] / row["p50_us"] / 1e3
                    self.assertAlmostEqual(row["ceiling_percent"], 100 * rate / row["ceiling"], delta=1e-3 * rate + 6e-4)  # it has three places

    def test_sockets(self):
        table, results = self.measured("--transport", "tcp", ranks=3)
        self.check_agreement(table, results, "sockets")
        for row in results:
            percent = 100 * row["busbw"] / row["ceiling"]
            self.assertAlmostEqual(row["ceiling_percent"], percent if percent <= 150 else 0, delta=1e-3)


if __name__ == "__main__":
    main()
