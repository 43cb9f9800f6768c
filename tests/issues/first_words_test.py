# SPDX-License-Identifier: Apache-2.0
"""What the rondo program answers to the most common mistakes.
Usage: first_words_test.py PATH_OF_RONDO"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import QUICK, main, rondo, rows  # noqa: E402


class FirstWords(unittest.TestCase):
    def first_line(self, *arguments):
        result = rondo(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr.splitlines()[0]

    def test_the_nearest_name(self):
        for arguments, line in {
                ("benhc",): "rondo: unknown command 'benhc'; did you mean bench?",
                ("bnech", "-b", "8"): "rondo: unknown command 'bnech'; did you mean bench?",
                ("infos",): "rondo: unknown command 'infos'; did you mean info?",
                ("xyzzy",): "rondo: unknown command 'xyzzy'",
                ("bench", "--itres", "3"): "rondo bench: unknown flag --itres; did you mean --iters?",
                ("bench", "--itres=3"): "rondo bench: unknown flag --itres; did you mean --iters?",
                ("plan", "--explian"): "rondo plan: unknown flag --explian; did you mean --explain?",
                ("run", "-n", "2", "--lable", "true"): "rondo run: unknown flag --lable; did you mean --label?",
                (): "rondo: no command given"}.items():
            with self.subTest(arguments=arguments):
                self.assertEqual(self.first_line(*arguments), line)
        for arguments, start in {
                ("bench", "all_redcue"): "rondo bench: operation all_redcue: unknown; did you mean all_reduce?; possible: ",
                ("bench", "-d", "f46"): "rondo bench: --datatype f46: unknown; did you mean f64?; possible: ",
                ("bench", "--transport", "tpc"): "rondo bench: --transport tpc: unknown; did you mean tcp?; possible: ",
                ("plan", "redcue"): "rondo plan: operation redcue: unknown; did you mean reduce?; possible: "}.items():
            with self.subTest(arguments=arguments):
                self.assertTrue(self.first_line(*arguments).startswith(start), self.first_line(*arguments))

    def test_the_flag_of_mpirun(self):
        for arguments in (["-np", "2", "true"], ["-np2", "true"], ["-l", "-np", "2", "--", "true"]):
            self.assertEqual(self.first_line("run", *arguments),
                             "rondo run: -np: the number of ranks is -n or --ranks here: rondo run -n 4 -- PROGRAM ARGUMENTS")
        self.assertEqual(self.first_line("bench", "-np", "2"), "rondo bench: -np: the number of ranks is --ranks here: rondo bench --ranks 4")
        # After the name of the program the flag belongs to the program.
        self.assertEqual(rondo("run", "-n", 1, "echo", "-np", 2).stdout, "-np 2\n")

    def test_our_words(self):
        for arguments, line in {
                ("bench", "-n"): "rondo bench: --iters needs a value after it",
                ("bench", "--json"): "rondo bench: --json needs a value after it",
                ("bench", "-n", "1", "-n", "2"): "rondo bench: --iters is given more than once",
                ("bench", "--allocate=maybe"): "rondo bench: --allocate takes no value",
                ("bench", "reduce", "broadcast"): "rondo bench: 'broadcast' is one argument too many",
                ("plan", "--check", "--explain"): "rondo plan: --check and --explain cannot be given together",
                ("run", "true"): "rondo run: the number of ranks is missing: rondo run -n 4 -- PROGRAM ARGUMENTS (--ranks is -n)",
                ("run", "-n"): "rondo run: --ranks needs a value after it"}.items():
            with self.subTest(arguments=arguments):
                self.assertEqual(self.first_line(*arguments), line)

    def test_one_rank(self):
        result = rondo("bench", "--ranks", 1, "-b", 8, "-e", 8, *QUICK)
        self.assertEqual((result.returncode, len(rows(result.stdout))), (0, 2))
        self.assertEqual(result.stderr, "rondo bench: --ranks 1: nothing will cross a link, so there is no bus bandwidth. "
                         "Measure with --ranks 2 or more\n")


if __name__ == "__main__":
    main()
