# SPDX-License-Identifier: Apache-2.0
"""Runs tests that mostly wait at the same time, in threads.

The threads live as long as the run: a process whose preexec_fn is end_with_parent ends with the
thread that started it."""

import concurrent.futures
import unittest

from cases import few_cases


class Record(unittest.TestResult):
    """Records what a test tells its result. repeat() tells the real one, on one thread."""

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
    """Runs its suites in `workers` threads; with a sanitizer, where all of them compute, in one."""

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
    """The load_tests of a script whose tests run at the same time. No class may have setUpClass."""
    def load_tests(_loader, tests, _pattern):
        return AtOnce(workers, (unittest.TestSuite([test]) for case in tests for test in case))
    return load_tests


def by_class(workers: int):
    """The load_tests of a script whose classes run at the same time, the tests of each in turn."""
    def load_tests(_loader, tests, _pattern):
        return AtOnce(workers, tests)
    return load_tests
