# SPDX-License-Identifier: Apache-2.0
"""Tests messages.py with made-up sources."""

import io
import pathlib
import tempfile
import unittest

import messages


class MessagesTest(unittest.TestCase):
    def check(self, source):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "lib").mkdir()
            (root / "lib" / "x.cc").write_text(source)
            out = io.StringIO()
            problems, count = messages.check(root, out)
            self.assertEqual(len(out.getvalue().splitlines()), count)
            return problems, out.getvalue()

    def test_texts_are_found(self):
        for source in ('throw Error("rank {} lost rank {}");', 'f("rank {} "\n  "lost rank {}");',
                       'f(R"(rank {} lost rank {})");', "'\"'; f(\"rank {} lost rank {}\");"):
            problems, text = self.check(source)
            self.assertEqual(problems, [])
            self.assertIn("rank {} lost rank {}", text, source)

    def test_others_are_not(self):
        for source in ('// "rank {} lost rank {}"', '/* "one two three" */', 'f("two words");', 'f("a/b/c.d");',
                       '#include "one two three"', 'f("{} {} {}");'):
            self.assertEqual(self.check(source), ([], ""), source)

    def test_rules(self):
        for text in ("the guest has not come", "the order that rank 0 told is an order that is none",
                     "please set the variable", "rank 3 is gone!", "word " * 100):
            problems, _ = self.check(f'f("{text}");')
            self.assertEqual(len(problems), 1, text)
            self.assertTrue(problems[0].startswith("lib/x.cc:1: "))


if __name__ == "__main__":
    unittest.main()
