# SPDX-License-Identifier: Apache-2.0
"""README and the pages under docs/: links lead to files, and what is written twice is the same.
Usage: readme_test.py SOURCE"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
README = (SOURCE / "README.md").read_text()
PAGES = [SOURCE / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted((SOURCE / "docs").glob("*.md"))


def links(text):
    """The files that a page links to."""
    return [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link and not link.startswith("#")]


class Readme(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in links(page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.name} links to {link}")

    def test_the_list_of_pages_names_each_once(self):
        listed = links(README[README.index("## More"):])
        self.assertEqual(sorted(listed), sorted(set(listed)))
        self.assertGreater(len(listed), 10)

    def test_numbers_are_an_excerpt_of_the_measurements(self):
        pattern = re.compile(r"(?m)^\| \d+ \| [0-9.]+ \w+ \| .*$")
        shown, measured = pattern.findall(README), pattern.findall((SOURCE / "docs" / "measurements.md").read_text())
        self.assertGreater(len(shown), 3)
        self.assertLess(len(shown), 9, "README shows an excerpt; the whole table is in docs/measurements.md")
        for row in shown:
            self.assertIn(row, measured)

    def test_it_says_where_cuda_has_run(self):
        self.assertRegex(README[README.index("## Limitations"):], r"CUDA has run on one H100 that all ranks shared, never yet on several GPUs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
