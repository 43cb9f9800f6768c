# SPDX-License-Identifier: Apache-2.0
"""Runs tests that mostly wait at once, in threads.

A process whose preexec_fn is end_with_parent ends with the thread that started it. The threads here
live as long as the run."""

import concurrent.futures
import unittest

from cases import few_cases


class Record(unittest.TestResult):
    """Keeps what a test tells its result, for repeat(): a result is made for one thread."""

    TOLD = ("startTest", "stopTest", "addSuccess", "addError", "addFailure", "addSkip", "addSubTest", "addExpectedFailure",
            "addUnexpectedSuccess", "addDuration")

    def __init__(self):
        super().__init__()
        self._told = []
        for name in self.TOLD:
            setattr(self, name, lambda *arguments, name=name: self._told.append((name, arguments)))

    def repeat(self, result: unittest.TestResult) -> None:
        for name, arguments in self._told:
            if hasattr(result, name):
                getattr(result, name)(*arguments)


class AtOnce(unittest.TestSuite):
    """Runs its suites in so many threads; with a sanitizer, where all of them compute, in one."""

    def __init__(self, workers: int, suites):
        super().__init__(suites)
        self._workers = 1 if few_cases() else workers

    def run(self, result, debug=False):
        def run_one(suite):
            record = Record()
            suite.run(record)
            return record

        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            for done in concurrent.futures.as_completed([pool.submit(run_one, suite) for suite in self]):
                done.result().repeat(result)
        return result


def by_test(workers: int):
    """load_tests of a script: every test by itself. No class may have fixtures."""
    def load_tests(_loader, tests, _pattern):
        return AtOnce(workers, (unittest.TestSuite([test]) for case in tests for test in case))
    return load_tests


def by_class(workers: int):
    """load_tests of a script: the tests of a class one after the other, the classes at once."""
    def load_tests(_loader, tests, _pattern):
        return AtOnce(workers, tests)
    return load_tests
