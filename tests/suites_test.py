# SPDX-License-Identifier: Apache-2.0
"""Tests which suites suites.py chooses."""

import pathlib
import subprocess
import tempfile
import unittest

import suites

TABLE = "# a comment\n.  layers\nbase  base lib\nlib  lib\nlib/c  c_api\ntests/lib base\n"


class SuitesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("tests/suites.txt", TABLE)
        for suite in "base", "lib", "c_api", "layers", "table", "point":
            self.write(f"tests/{suite}/meson.build", "test('x', y)\n")
        self.write("tests/support/meson.build", "static_library('x')\n")
        for folder in "base", "lib/c":
            (self.root / folder).mkdir(parents=True)

    def write(self, name, text="x\n"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a", *arguments], check=True, capture_output=True)

    def commit(self, message="change"):
        self.git("add", "-A")
        self.git("commit", "-qm", message, "--allow-empty")

    def test_a_file_has_the_row_of_the_nearest_folder(self):
        table = suites.read_table(TABLE)
        for path, wanted in {"base/text.h": {"base", "lib"}, "lib/work.cc": {"lib"}, "lib/c/work.cc": {"c_api"},
                             "lib/wire/deep/x.h": {"lib"}, "dev": {"layers"}, "new/x.cc": set(),
                             "tests/table/abort_test.cc": {"table"}, "tests/lib/x.cc": {"base"}}.items():
            self.assertEqual(suites.suites_of(path, table, {"table", "lib"}), wanted, path)

    def test_successive_seeds_draw_every_suite_once_in_three(self):
        names = [str(number) for number in range(8)]
        drawn = [name for seed in (41, 42, 43) for name in suites.draw_third(names, seed)]
        self.assertEqual(sorted(drawn), names)

    def test_changes_since_the_last_tag_choose_suites(self):
        self.git("init", "-q")
        self.commit()
        self.git("tag", "v1")
        self.write("base/text.h")
        self.commit()
        third = suites.draw_third(suites.all_suites_of(self.root), 0)
        self.assertEqual(set(suites.changed(self.root, "0")), {"base", "lib"} | third)
        self.git("tag", "v2")
        self.assertEqual(suites.changed_files(self.root), ["base/text.h"])

    def test_changes_older_than_thirty_commits_choose_nothing(self):
        self.git("init", "-q")
        self.write("base/text.h")
        for _ in range(32):
            self.commit()
        self.write("lib/c/x.cc")
        self.commit()
        self.write("lib/new.cc")
        self.assertEqual(suites.changed_files(self.root), ["lib/c/x.cc", "lib/new.cc"])

    def test_names_that_are_no_tests_are_refused(self):
        tests = {"lib others": "lib", "lib control": "lib", "rondo run": "tools", "rondo schema": "tools"}
        suites.tests_of = lambda build, case_set, chosen: [({"name": name, "suite": [f"rondo:{suite}"]}, "waits") for name, suite in tests.items()]
        self.assertEqual(suites.named("build", "change", "--repeat", "9", "lib", "rondo s*"), ["lib others", "lib control", "rondo schema"])
        for word in "typo", "":
            with self.assertRaisesRegex(SystemExit, f"called '{word}'"):
                suites.named("build", "change", "lib", word)
        self.assertEqual(suites.options("-v", "lib", "--repeat", "9", "x"), ["-v", "--repeat", "9"])

    def test_a_test_of_the_set_all_is_told(self):
        suites.tests_of = lambda build, case_set, chosen: [({"name": "soak", "suite": ["rondo:soak"]}, "waits")] if case_set == "all" else []
        with self.assertRaisesRegex(SystemExit, "'soak': only in the set all"):
            suites.named("build", "change", "soak")

    def test_what_is_wrong_with_the_table(self):
        self.assertEqual(list(suites.problems(self.root, ["dev", "base/x.h", "lib/x.h"])), [])
        self.assertIn("no row for new", "".join(suites.problems(self.root, ["new/x.h"])))
        self.write("tests/suites.txt", TABLE + "gone base\nbase base strange\ntests\n")
        self.write("tests/base/lost_test.cc")
        self.write("tests/base/meson.build", "test('x', y, suite: 'bsae')\n")
        found = "".join(suites.problems(self.root, []))
        for problem in ("there is no folder gone", "there is no suite strange", "base has two rows", "tests: no suite tests it",
                        "tests/base/lost_test.cc: no meson.build names it", "in the suite bsae"):
            self.assertIn(problem, found)


if __name__ == "__main__":
    unittest.main()
