# SPDX-License-Identifier: Apache-2.0
"""The man page and docs/bench.md list the flags and exit statuses that rondo bench --help lists.
Usage: flags_test.py PATH_OF_RONDO, with --write to make these lists anew"""

import pathlib
import re
import sys
import textwrap
import unittest

from program import RONDO, main, rondo

ROOT = pathlib.Path(__file__).parents[2]


def flags_of(usage):
    """(names, value, text) of each flag but --help."""
    found = []
    for line in usage[usage.index("Options:"):].splitlines()[1:]:
        if not line.strip():
            break
        match = re.match(r"  (-\S+)(?: (\S+))?(?:  +(.*))?$", line)
        if match:
            found.append([match[1].split(","), match[2] or "", match[3] or ""])
        else:
            found[-1][2] = line.strip()
    return found[1:]


def statuses_of(usage):
    lines = usage[usage.index("Exit status:"):].splitlines()[1:]
    found = []
    for line in lines:
        match = re.match(r"  (\d\S*(?: \+ n)?)  +(\S.*)$", line)
        if match:
            found.append([match[1], match[2]])
        elif re.match(r" {11}\S", line):
            found[-1][1] += " " + line.strip()
        else:
            break
    return found


def paragraph(text):
    lines = textwrap.wrap(text + ".", 100, break_on_hyphens=False, break_long_words=False)
    return ["\\&" + line if line[0] in ".'" else line for line in lines]


def manual_flags(usage):
    lines = [".Bl -tag -width Ds"]
    for names, value, text in flags_of(usage):
        names = " , ".join("Fl " + name[1:] for name in names)
        lines += [f".It {names}" + (f" Ar {value.lower()}" if value else ""), *paragraph(text)]
    return lines + [".El"]


def manual_statuses(usage):
    lines = [".Bl -tag -width Ds"]
    for status, meaning in statuses_of(usage):
        lines += [f".It {status}", *paragraph(meaning[0].upper() + meaning[1:])]
    return lines + [".El"]


def code(text):
    return re.sub(r"--[a-z][a-z-]+", r"`\g<0>`", text)


def page_flags(usage):
    rows = [f"| `{', '.join(names)}{' ' + value if value else ''}` | {text} |".replace("core|numa", "core\\|numa").replace("numa|none", "numa\\|none")
            .replace("cpu|cuda|cuda", "cpu\\|cuda\\|cuda") for names, value, text in flags_of(usage)]
    return ["| flag | meaning |", "|---|---|", *rows]


def page_statuses(usage):
    return ["| exit status | meaning |", "|---|---|", *(f"| {status} | {code(meaning)} |" for status, meaning in statuses_of(usage))]


MAN, PAGE = ROOT / "tools" / "rondo.1", ROOT / "docs" / "bench.md"
PLACES = [(MAN, '.\\" flags of rondo bench --help', '.\\" end', manual_flags), (MAN, '.\\" statuses of rondo bench --help', '.\\" end', manual_statuses),
          (PAGE, "<!-- flags of rondo bench --help -->", "<!-- end -->", page_flags),
          (PAGE, "<!-- statuses of rondo bench --help -->", "<!-- end -->", page_statuses)]


def parts(path, begin, end):
    """The lines of a page before, within and after a list that is made here."""
    lines = path.read_text().splitlines()
    first = lines.index(begin) + 1
    last = lines.index(end, first)
    return lines[:first], lines[first:last], lines[last:]


def write():
    usage = rondo("bench", "--help").stdout
    for path, begin, end, make in PLACES:
        before, _, after = parts(path, begin, end)
        path.write_text("\n".join(before + make(usage) + after) + "\n")


class Flags(unittest.TestCase):
    def test_pages_list_what_help_lists(self):
        usage = rondo("bench", "--help").stdout
        self.assertGreater(len(flags_of(usage)), 40)
        self.assertEqual([status for status, _ in statuses_of(usage)], ["0", "1", "2", "3", "128 + n", "141"])
        for path, begin, end, make in PLACES:
            self.assertEqual(parts(path, begin, end)[1], make(usage), f"python3 -B {__file__} {RONDO} --write makes {path.name} anew")

    def test_every_command_has_the_same_statuses(self):
        self.assertEqual(statuses_of(rondo("--help").stdout), statuses_of(rondo("bench", "--help").stdout))


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        main()
