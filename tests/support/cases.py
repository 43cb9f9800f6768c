# SPDX-License-Identifier: Apache-2.0
"""Decides which cases a script runs, as effort.h does in C++. RONDO_TEST_CASES names the set:
"change" (the default) or "all", and in builds with a sanitizer "few" or "all few", which are the
same for scripts. RONDO_TEST_SEED draws the cases of the smaller sets. Successive seeds draw
different cases, and together all of them."""

import os
import signal
import sys

WORD = (1 << 64) - 1


def case_set() -> str:
    return os.environ.get("RONDO_TEST_CASES", "change")


def few_cases() -> bool:
    return case_set().endswith("few")


def all_cases() -> bool:
    return case_set() == "all"


def test_seed() -> int:
    """RONDO_TEST_SEED, or 1 if it is not set."""
    return int(os.environ.get("RONDO_TEST_SEED", "1"))


def effort() -> int:
    """The percentage of their cases that large tests run."""
    return 100 if all_cases() else 2 if few_cases() else 20


def mix_hash(hash_so_far: int, value: int) -> int:
    """The same hash as in base/mix.h."""
    mixed = (hash_so_far ^ value) + 0x9e3779b97f4a7c15 & WORD
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9 & WORD
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb & WORD
    return mixed ^ mixed >> 31


def drawn(number: int, percent: int | None = None) -> bool:
    """Whether this run has case `number` of a table of which it runs `percent` percent."""
    percent = effort() if percent is None else percent
    if percent >= 100:
        return True
    runs = 100 // percent
    return mix_hash(runs, number) % runs == test_seed() % runs


def drawn_of(cases, count: int = 1) -> list:
    """`count` of these cases, in their order; in the set "all", all of them. N / count successive
    seeds, rounded up, draw all of N cases."""
    cases = list(cases)
    if all_cases() or count >= len(cases):
        return cases
    # Neighbours in a table are alike, so the cases are first shuffled, in the same way in all runs.
    mixed = sorted(range(len(cases)), key=lambda number: mix_hash(len(cases), number))
    chosen = {mixed[(test_seed() * count + number) % len(cases)] for number in range(count)}
    return [case for number, case in enumerate(cases) if number in chosen]


def heed_signals() -> None:
    """nohup and shells let programs ignore signals, and their children inherit that."""
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)


def draws(count: int, *names: str):
    """A decorator that keeps `count` of these tests of a TestCase, by default of all its tests. A
    test that the command line names is kept too."""
    def choose(case):
        tests = [name for name in names or vars(case) if name.startswith("test") and name in vars(case)]
        kept = drawn_of(tests, count)
        for name in tests:
            if name not in kept and not any(name in argument for argument in sys.argv[1:]):
                delattr(case, name)
        return case
    return choose
