# SPDX-License-Identifier: Apache-2.0
"""Tests how mutants.py reads mutants and finds their places."""

import pathlib
import tempfile
import unittest

import mutants

HEAD = "file: base/a.cc\nsuites: base transports\nwhy: It is wrong.\n"


class MutantsTest(unittest.TestCase):
    def changed(self, lines, text):
        return mutants.Mutant("name", HEAD + lines).apply(text)

    def refused(self, text, reason):
        with self.assertRaisesRegex(mutants.MutantError, reason):
            mutants.Mutant("name", text)

    def test_a_line_is_replaced_and_keeps_its_indentation(self):
        self.assertEqual(self.changed("- b();\n+ c();\n", "a();\n  b();\nd();\n"), "a();\n  c();\nd();\n")
        self.assertEqual(self.changed("- b();\n+ if (x)\n+   c();\n", "  b();\n"), "  if (x)\n    c();\n")

    def test_lines_are_removed_and_added(self):
        self.assertEqual(self.changed("- b();\n- c();\n", "a();\nb();\nc();\n"), "a();\n")
        self.assertEqual(self.changed("  a();\n+ b();\n", "  a();\nc();\n"), "  a();\n  b();\nc();\n")

    def test_context_makes_a_place_unique(self):
        self.assertEqual(self.changed("  c();\n- x();\n+ y();\n", "b();\nx();\n c();\n  x();\n"), "b();\nx();\n c();\n  y();\n")

    def test_a_place_that_is_not_there_or_twice(self):
        with self.assertRaisesRegex(mutants.MutantError, "its place is 0 times in base/a.cc"):
            self.changed("- b();\n", "a();\n// b();\n")
        with self.assertRaisesRegex(mutants.MutantError, "its place is 2 times in base/a.cc"):
            self.changed("- b();\n", "b();\n  b();\n")

    def test_files_that_cannot_be_read(self):
        self.refused("file: a\nwhy: b\n- c\n", "suites is missing")
        self.refused(HEAD, "no line is changed")
        self.refused(HEAD + "  only();\n", "no line is changed")
        self.refused(HEAD + "reason: none\n- a\n", "name:4: neither a key")
        self.refused(HEAD + "why: twice\n- a\n", "name:4: neither a key")
        self.refused(HEAD + "- a\nsurvives: too late\n", "name:5: neither a key")

    def test_a_tree_is_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "base").mkdir()
            (root / "base/a.cc").write_text("a();\nb();\n")
            (root / "tests").mkdir()
            (root / "tests/meson.build").write_text("subdir('base')\ntest('transports tcp', x)\n")
            (root / "one.mutant").write_text(HEAD + "- b();\n")
            self.assertEqual(mutants.read_mutants(root, root)[1], [])
            (root / "one.mutant").write_text(HEAD.replace("base ", "base_typo ") + "- b();\n")
            self.assertIn("one: there is no suite base_typo", mutants.read_mutants(root, root)[1][0])
            (root / "one.mutant").unlink()
            (root / "two.mutant").write_text(HEAD.replace("a.cc", "gone.cc") + "- b();\n")
            (root / "three.mutant").write_text(HEAD + "- c();\n")
            problems = mutants.read_mutants(root, root)[1]
            self.assertEqual(len(problems), 2)
            self.assertIn("three: its place is 0 times", problems[0])
            self.assertIn("base/gone.cc", problems[1])

    def test_the_seed_draws_those_that_must_be_noticed(self):
        noticed = [mutants.Mutant(name, HEAD + "- b();\n") for name in "abcdef"]
        survivor = mutants.Mutant("g", HEAD + "survives: nobody looks\n- b();\n")
        drawn = [[mutant.name for mutant in mutants.draw([survivor, *noticed], 3, seed)] for seed in range(50)]
        self.assertEqual({name for names in drawn for name in names}, set("abcdef"))
        self.assertEqual(drawn, [sorted(names) for names in drawn])
        self.assertEqual(mutants.draw([survivor, *noticed], 9, 1), noticed)

    def test_the_case_that_failed_is_named(self):
        dashes, dots = "-" * 79, "." * 79
        text = f"{dashes}\nfirst\n{dashes}\na.cc:1\n{dots}\n\nonly a WARNING\n{dashes}\nsecond\n  section\n{dashes}\na.cc:9\n{dots}\n\na.cc:12: FAILED:\n  CHECK( no )\n"
        self.assertEqual(mutants.case_that_failed(text), "second")
        self.assertEqual(mutants.case_that_failed("F\nFAIL: test_x (a.Test)\nmore\n"), "test_x")
        self.assertEqual(mutants.case_that_failed("one\nlast line\n\n"), "last line")


if __name__ == "__main__":
    unittest.main()
