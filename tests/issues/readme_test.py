# SPDX-License-Identifier: Apache-2.0
"""README and the pages under docs/: links lead to files and headings, mentions of pages to pages, and
what is written twice is the same.
Usage: readme_test.py SOURCE"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
README = (SOURCE / "README.md").read_text()
DOCS = SOURCE / "docs"
PAGES = [*sorted(SOURCE.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
ROOMS = ("base", "bench", "bn", "collectives", "device", "dev", "examples", "grad", "include", "lib", "python", "tests", "tools",
         "training", "transports", "meson.build")


def links(text):
    """The files, and headings in them, to which a page links."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


def headings(text):
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^ *```.*?^ *```", "", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def sources():
    for room in ROOMS:
        place = SOURCE / room
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and path.suffix in ("", ".1", ".build", ".c", ".cc", ".cu", ".h", ".py", ".sh", ".toml", ".yaml"):
                yield path


class Readme(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in links(page.read_text()):
                name, _, heading = link.partition("#")
                target = page.parent / name if name else page
                self.assertTrue(target.exists(), f"{page.name} links to {link}")
                if heading:
                    self.assertIn(heading, headings(target.read_text()), f"{page.name} links to {link}")

    def test_sources_and_messages_name_pages_that_exist(self):
        for path in sources():
            for name in re.findall(r"docs/[\w./-]+\.(?:md|json)\b", path.read_text(errors="replace")):
                self.assertTrue((SOURCE / name).exists(), f"{path.relative_to(SOURCE)} names {name}")

    def test_pages_name_sources_that_exist(self):
        named = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROOMS)})/[\w./-]+\.(?:h|cc|cu|py|sh|build)\b")
        for page in PAGES:
            for name in named.findall(page.read_text()):
                self.assertTrue((SOURCE / name).exists(), f"{page.name} names {name}")

    def test_the_list_of_pages_names_each_once(self):
        listed = links(README[README.index("## More"):])
        self.assertEqual(sorted(listed), sorted(set(listed)))
        self.assertGreater(len(listed), 10)
        indexed = [link for link in links((DOCS / "README.md").read_text()) if not link.startswith("..")]
        pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page != DOCS / "README.md"]
        self.assertEqual(sorted(indexed), sorted(pages))

    def test_numbers_are_an_excerpt_of_the_measurements(self):
        pattern = re.compile(r"(?m)^\| \d+ \| [0-9.]+ \w+ \| .*$")
        shown, measured = pattern.findall(README), pattern.findall((DOCS / "measurements.md").read_text())
        self.assertGreater(len(shown), 3)
        self.assertLess(len(shown), 9, "README shows an excerpt; the whole table is in docs/measurements.md")
        for row in shown:
            self.assertIn(row, measured)

    def test_it_says_where_cuda_has_run(self):
        self.assertRegex(README[README.index("## Limitations"):], r"CUDA has run on one H100 that all ranks shared, never yet on several GPUs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
