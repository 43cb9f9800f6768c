# SPDX-License-Identifier: Apache-2.0
"""Sums up the logs of `meson test`. The last line is "N passed, N failed[, N skipped]".

    summary.py [--also-failed=N] [--also-passed=N] [--again=COMMAND] [--names=FILE]... TESTLOG.json...

Above that line it names each program that failed, with the end of its output (and the beginning of
long errors): a machine that runs the tests may keep only the last lines that they print. COMMAND,
followed by the name of a test, repeats that test.

A Catch2 program counts as its test cases, any other test as one. A program that fails counts at
least one failure, whatever it printed (a crash after the last case, a leak, a timeout). So does a
log that is missing or cut off, and each test that a FILE names (one in a line) and no log has. The
other options add what was counted elsewhere. The exit status is 1 when anything
failed.
"""

import json
import re
import shlex
import sys

ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.MULTILINE)
SOME_FAILED = re.compile(r"^test cases: +\d+ +\|(.*)$", re.MULTILINE)


def catch_cases(output):
    """(passed, failed) as Catch2 counted them; None when the output lacks its closing line."""
    if some := SOME_FAILED.findall(output):
        counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed)\b(?! as)", some[-1])}
        return counts.get("passed", 0), counts.get("failed", 0)
    if all_passed := ALL_PASSED.findall(output):
        return int(all_passed[-1]), 0
    return None


def count(test):
    """(passed, failed, skipped) of one line of the log."""
    result = test["result"]
    if result == "SKIP":
        return 0, 0, 1
    passed, failed = catch_cases(test.get("stdout") or "") or (1, 0)
    if result in ("OK", "EXPECTEDFAIL"):
        return passed, failed, 0
    # The program failed. Its counts hold only when they contain a failure: otherwise it crashed
    # later.
    return (passed if failed else 0), max(failed, 1), 0


def name_of(test):
    return test["name"].split(" / ")[-1]


def read_log(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log if line.strip()]


def end_of(test, most_lines=40, first_lines=20):
    """The last lines of what the test printed, indented. Of a long text of errors the first lines
    too: a sanitizer's report of how a program ended comes after the program's own words."""
    output, errors = ((test.get(stream) or "").splitlines() for stream in ("stdout", "stderr"))
    if len(errors) > most_lines:
        lines = [*errors[:first_lines], "[...]", *errors[first_lines - most_lines + 1:]]
    else:
        lines = [*output, *errors][-most_lines:]
    return "".join(f"    {line}\n" for line in lines)


def why_skipped(test):
    """The reason that the test gave, or how it ended."""
    found = re.search(r"skipped: *(.+)", (test.get("stdout") or "") + (test.get("stderr") or ""))
    return found[1] if found else f"exit status {test.get('returncode', 77)}"


def main(arguments):
    passed = failed = skipped = 0
    again, wanted, seen = "", [], set()
    for argument in arguments:
        if argument.startswith("--also-failed="):
            failed += int(argument.split("=")[1])
            continue
        if argument.startswith("--also-passed="):
            passed += int(argument.split("=")[1])
            continue
        if argument.startswith("--again="):
            again = argument.split("=", 1)[1]
            continue
        if argument.startswith("--names="):
            with open(argument.split("=", 1)[1], encoding="utf-8") as names:
                wanted += names.read().splitlines()
            continue
        try:
            tests = read_log(argument)
        except (OSError, ValueError) as error:
            print(f"FAILED: no tests were run: {error}")
            failed += 1
            continue
        for test in tests:
            seen.add(name_of(test))
            counts = count(test)
            passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
            if counts[1]:
                print(f"FAILED: {test['name']} ({test['result'].lower()}, {test['duration']:.1f} s): see {argument}")
                print(end_of(test), end="")
                if again:
                    print(f"again: {again} {shlex.quote(name_of(test))}")
            elif counts[2]:
                print(f"skipped: {test['name']}: {why_skipped(test)}")
    for name in wanted:
        if name not in seen:
            print(f"FAILED: {name} has no result")
            failed += 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
