# SPDX-License-Identifier: Apache-2.0
"""Chooses tests of a build folder by their suites.

    suites.py changed ROOT SEED                   suites of the folders that the last changes touch,
                                                  and a third of all suites, which SEED draws
    suites.py others ROOT SUITE...                all suites but these
    suites.py names BUILD KIND SET [SUITE...]     the names of tests, by default of all suites
    suites.py named BUILD SET ARGUMENT...         the tests that arguments of `meson test` name; an
                                                  error if one is no test of the set
    suites.py targets BUILD SET [SUITE...]        the files that these tests need

A suite is a folder of tests/; suites.txt says which folders of the product it tests. Tests that
mostly wait are also in the suite `waits`; tests beside which nothing may run, in `alone`. KIND is
waits, alone, computes (the others) or any. Tests of the suite `check` are only in the set all.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys

KINDS = ("waits", "alone")
CHECK_ONLY = "check"
TABLE = "tests/suites.txt"
THIRDS = 3


def read_table(text):
    """{folder: [suite, ...]}"""
    rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {folder: suites for folder, *suites in rows}


def row_of(path, table):
    """The folder whose row a file belongs to, or None."""
    parts = path.split("/")[:-1]
    folders = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((folder for folder in folders if folder in table), None if parts else ".")


def suites_of(path, table, all_suites):
    """The suites that test a file."""
    parts = path.split("/")
    if parts[0] == "tests" and len(parts) > 2 and parts[1] in all_suites:
        return {parts[1]}
    return set(table.get(row_of(path, table), ()))


def all_suites_of(root):
    """The folders of tests/ that have tests."""
    return {path.parent.relative_to(root / "tests").parts[0] for path in root.glob("tests/*/**/meson.build")
            if re.search(r"\btest\(", path.read_text(encoding="utf-8"))}


def problems(root, files):
    """Yields what is wrong with the table: folders of these files without a row, rows without a
    folder, and suites that do not exist."""
    table, everything = read_table((root / TABLE).read_text(encoding="utf-8")), all_suites_of(root)
    for folder in sorted({path.rsplit("/", 1)[0] if "/" in path else "." for path in files}):
        if row_of(f"{folder}/x" if folder != "." else "x", table) is None:
            yield f"{TABLE}: no row for {folder}: which suites test it?"
    for folder, suites in table.items():
        if not (root / folder).is_dir():
            yield f"{TABLE}: there is no folder {folder}"
        for suite in suites:
            if suite not in everything:
                yield f"{TABLE}: {folder}: there is no suite {suite}; a suite is a folder of tests/ with a test()"


def changed_files(root):
    """The files that differ from the last tag or from 30 commits ago, whichever is nearer; in a
    tree without history, all files."""
    def git(*arguments):
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False).stdout.split()
    tags = git("describe", "--tags", "--abbrev=0", "HEAD^")  # a tag of HEAD itself would hide all changes
    bases = [base for base in (*tags, "HEAD~30") if git("rev-parse", "--verify", "--quiet", base)]
    if not bases:
        return git("ls-files")
    nearest = min(bases, key=lambda base: int(git("rev-list", "--count", f"{base}..HEAD")[0]))
    return git("diff", "--name-only", nearest, "HEAD")


def draw_third(suites, seed):
    """A third of the suites. Three successive seeds draw each suite once."""
    return {suite for place, suite in enumerate(sorted(suites)) if place % THIRDS == seed % THIRDS}


def changed(root, seed):
    root = pathlib.Path(root)
    table = read_table((root / TABLE).read_text(encoding="utf-8"))
    everything = all_suites_of(root)
    touched = set().union(*(suites_of(path, table, everything) for path in changed_files(root))) & everything
    # A third of all suites, not of the others: so three successive seeds run every suite.
    return sorted(touched | draw_third(everything, int(seed)))


def others(root, *suites):
    return sorted(all_suites_of(pathlib.Path(root)) - set(suites))


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", f"--{what}", build], capture_output=True, text=True, check=True).stdout)


def tests_of(build, case_set, suites):
    """Yields each test of a build folder that these suites have in this set, and its kind."""
    for test in introspect(build, "tests"):
        own = [suite.split(":")[-1] for suite in test["suite"]]
        if (case_set == "all" or CHECK_ONLY not in own) and (not suites or set(own) & set(suites)):
            yield test, next((kind for kind in KINDS if kind in own), "computes")


def names(build, kind, case_set, *suites):
    return [test["name"] for test, own in tests_of(build, case_set, suites) if kind in (own, "any")]


def named(build, case_set, *arguments):
    """A name may have wildcards, or be a suite. A word behind an option is its value, not a name."""
    known = {test["name"]: test["suite"] for test, _ in tests_of(build, case_set, ())}
    def chosen(name, word):
        return fnmatch.fnmatchcase(name, word) or f"rondo:{word}" in known[name]
    words = [word for before, word in zip(("", *arguments), arguments) if not word.startswith("-") and not before.startswith("-")]
    if unknown := [word for word in words if not any(chosen(name, word) for name in known)]:
        sys.exit(f"no test of the set {case_set} is called {', '.join(map(repr, unknown))}; meson test -C {build} --list names all")
    return [name for name in known if any(chosen(name, word) for word in words)]


def targets(build, case_set, *suites):
    wanted = {target for test, _ in tests_of(build, case_set, suites) for target in test["depends"]}
    files = {pathlib.Path(file).relative_to(pathlib.Path(build).resolve()).as_posix()
             for target in introspect(build, "targets") if target["id"] in wanted for file in target["filename"]}
    return sorted(files)


if __name__ == "__main__":
    command = {"changed": changed, "others": others, "names": names, "named": named, "targets": targets}[sys.argv[1]]
    for line in command(*sys.argv[2:]):
        print(line)
