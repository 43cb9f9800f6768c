# SPDX-License-Identifier: Apache-2.0
"""Chooses tests of a build folder by their suites.

    suites.py changed ROOT SEED                   suites of the folders that the last changes touch,
                                                  and a third of all suites, which SEED draws
    suites.py others ROOT SUITE...                all suites but these
    suites.py names BUILD KIND SET [SUITE...]     the names of tests, by default of all suites
    suites.py named BUILD SET ARGUMENT...         the tests that arguments of `meson test` name; an
                                                  error if one is no test of the set
    suites.py words ARGUMENT...                   those of the arguments that are names
    suites.py options ARGUMENT...                 the others
    suites.py targets BUILD SET [WORD...]         the files that the named tests need

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
    if parts[0] == "tests" and len(parts) > 2 and parts[1] in all_suites and "/".join(parts[:2]) not in table:
        return {parts[1]}
    return set(table.get(row_of(path, table), ()))


def all_suites_of(root):
    """The folders of tests/ that have tests."""
    return {path.parent.relative_to(root / "tests").parts[0] for path in root.glob("tests/*/**/meson.build")
            if re.search(r"\btest\(", path.read_text(encoding="utf-8"))}


def problems(root, files):
    """Yields what is wrong with the table: folders of these files without a row, rows without a
    folder or suites, and suites that do not exist. Also tests that no meson.build names."""
    text = (root / TABLE).read_text(encoding="utf-8")
    table, everything = read_table(text), all_suites_of(root)
    rows = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for folder in sorted({row for row in rows if rows.count(row) > 1}):
        yield f"{TABLE}: {folder} has two rows"
    for folder in sorted({path.rsplit("/", 1)[0] if "/" in path else "." for path in files}):
        if row_of(f"{folder}/x" if folder != "." else "x", table) is None:
            yield f"{TABLE}: no row for {folder}: which suites test it?"
    for folder, suites in table.items():
        if not (root / folder).is_dir():
            yield f"{TABLE}: there is no folder {folder}"
        if not suites:
            yield f"{TABLE}: {folder}: no suite tests it"
        for suite in suites:
            if suite not in everything:
                yield f"{TABLE}: {folder}: there is no suite {suite}; a suite is a folder of tests/ with a test()"


    builds = "".join(path.read_text(encoding="utf-8") for path in root.glob("tests/**/meson.build"))
    for path in sorted(path for kind in ("cc", "py") for path in root.glob(f"tests/**/*_test.{kind}")):
        # A loop over names appends _test.
        if not re.search(rf"\b{path.stem}\b|'{re.escape(path.stem.removesuffix('_test'))}'", builds):
            yield f"{path.relative_to(root)}: no meson.build names it, so it never runs"
    for path in sorted(root.glob("tests/*/**/meson.build")):
        folder = path.relative_to(root / "tests").parts[0]
        for suite in re.findall(r"suite: \[?'(\w+)'", path.read_text(encoding="utf-8")):
            if suite not in everything:
                yield f"tests/{folder}: a test is in the suite {suite}; a suite is a folder of tests/"


def changed_files(root):
    """The files, committed or not, that differ from the last tag or from 30 commits ago, whichever is nearer; in a
    tree without history, all files."""
    def git(*arguments):
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False).stdout.split("\0" if "-z" in arguments else None)
    def files(*arguments):
        return [path for path in git(*arguments, "-z") if path]
    tags = git("describe", "--tags", "--abbrev=0", "HEAD^")  # a tag of HEAD itself would hide all changes
    bases = [base for base in (*tags, "HEAD~30") if git("rev-parse", "--verify", "--quiet", base)]
    if not bases:
        return files("ls-files")
    nearest = min(bases, key=lambda base: int(git("rev-list", "--count", f"{base}..HEAD")[0]))
    return files("diff", "--name-only", nearest) + files("ls-files", "--others", "--exclude-standard")


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


# The options of `meson test` behind which a value stands.
WITH_VALUE = {"-C", "-t", "--repeat", "--setup", "--suite", "--no-suite", "--num-processes", "--maxfail", "--logbase", "--wrapper", "--wrap", "--test-args",
              "--timeout-multiplier", "--gdb-path", "--max-lines"}


def words_and_options(arguments):
    """Arguments that name tests, and the others."""
    named_tests, rest = [], []
    for before, word in zip(("", *arguments), arguments):
        (rest if word.startswith("-") or before in WITH_VALUE else named_tests).append(word)
    return named_tests, rest


def words(*arguments):
    return words_and_options(arguments)[0]


def options(*arguments):
    return words_and_options(arguments)[1]


def chosen(test, word):
    """A name may have wildcards, or be a suite."""
    return fnmatch.fnmatchcase(test["name"], word) or any(suite.split(":")[-1] == word for suite in test["suite"])


def named(build, case_set, *arguments):
    wanted = words(*arguments)
    if chosen_by_meson := [word for word in arguments if word.startswith(("--suite", "--no-suite", "--list", "--setup"))]:
        sys.exit(f"{chosen_by_meson[0]} is not possible here: give names or suites")
    tests = [test for test, _ in tests_of(build, case_set, ())]
    if unknown := [word for word in wanted if not any(chosen(test, word) for test in tests)]:
        names = ", ".join(map(repr, unknown))
        if case_set != "all" and all(any(chosen(test, word) for test, _ in tests_of(build, "all", ())) for word in unknown):
            sys.exit(f"{names}: only in the set all: give --all before it")
        sys.exit(f"no test is called {names}; meson test -C {build} --list --setup all names them")
    return [test["name"] for test in tests if not wanted or any(chosen(test, word) for word in wanted)]


def targets(build, case_set, *chosen_by):
    """Without words, or for tests that need an installed Rondo, all there is."""
    tests = [test for test, _ in tests_of(build, case_set, ()) if not chosen_by or any(chosen(test, word) for word in chosen_by)]
    if not chosen_by or any("rondo:install" in test["suite"] for test in tests):
        return ["all"]
    wanted = {target for test in tests for target in test["depends"]}
    files = {pathlib.Path(file).relative_to(pathlib.Path(build).resolve()).as_posix()
             for target in introspect(build, "targets") if target["id"] in wanted for file in target["filename"]}
    return sorted(files) or ["build.ninja"] * bool(tests)


if __name__ == "__main__":
    command = {"changed": changed, "others": others, "names": names, "named": named, "words": words, "options": options, "targets": targets}[sys.argv[1]]
    for line in command(*sys.argv[2:]):
        print(line)
