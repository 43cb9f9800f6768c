# SPDX-License-Identifier: Apache-2.0
"""Tests what summary.py counts."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import summary


def log_line(result, stdout=""):
    return {"name": "rondo / made up", "result": result, "stdout": stdout, "duration": 0.1}


class SummaryTest(unittest.TestCase):
    def printed(self, tests, *options):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "testlog.json"
            log.write_text("".join(json.dumps(test) + "\n" for test in tests))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = summary.main([*options, str(log)])
        lines = printed.getvalue().splitlines()
        self.assertEqual(status, 0 if " 0 failed" in lines[-1] else 1)
        return lines

    def closing_line(self, tests, *options):
        return self.printed(tests, *options)[-1]

    def test_programs(self):
        self.assertEqual(self.closing_line([log_line("OK"), log_line("OK")]), "2 passed, 0 failed")
        self.assertEqual(self.closing_line([log_line("OK"), log_line("FAIL"), log_line("SKIP")]),
                         "1 passed, 1 failed, 1 skipped")
        self.assertEqual(self.closing_line([log_line("TIMEOUT"), log_line("ERROR")]), "0 passed, 2 failed")

    def test_a_skipped_test_says_why(self):
        self.assertEqual(self.printed([log_line("SKIP", "skipped: there is no GPU\n")])[0], "skipped: rondo / made up: there is no GPU")

    def test_catch_cases(self):
        good = "====\nAll tests passed (120 assertions in 14 test cases)\n\n"
        bad = "====\ntest cases:  14 |  12 passed |  2 failed\nassertions: 120 | 117 passed | 3 failed\n"
        self.assertEqual(self.closing_line([log_line("OK", good)]), "14 passed, 0 failed")
        self.assertEqual(self.closing_line([log_line("OK", "All tests passed (1 assertion in 1 test case)\n")]),
                         "1 passed, 0 failed")
        self.assertEqual(self.closing_line([log_line("FAIL", bad)]), "12 passed, 2 failed")
        self.assertEqual(self.closing_line([log_line("FAIL", "test cases: 2 | 2 failed\n")]), "0 passed, 2 failed")
        self.assertEqual(
            self.closing_line([log_line("OK", "test cases: 3 | 2 passed | 1 failed as expected\n")]), "2 passed, 0 failed")

    def test_a_bad_end_is_a_failure_whatever_was_printed(self):
        good = "All tests passed (120 assertions in 14 test cases)\n"
        self.assertEqual(self.closing_line([log_line("FAIL", good)]), "0 passed, 1 failed")

    def test_a_failure_is_named_with_the_end_of_its_output(self):
        output = "".join(f"line {number}\n" for number in range(100))
        lines = self.printed([log_line("OK", output), {**log_line("FAIL", output), "stderr": "why\n"}])
        self.assertIn("FAILED: rondo / made up (fail, 0.1 s)", lines[0])
        self.assertEqual([line.strip() for line in lines[1:-1]], [f"line {number}" for number in range(61, 100)] + ["why"])

    def test_a_failure_is_named_with_the_command_that_repeats_it(self):
        lines = self.printed([log_line("OK"), log_line("FAIL")], "--again=RONDO_TEST_SEED=7 ./dev test")
        self.assertEqual([line for line in lines if "again" in line], ["again: RONDO_TEST_SEED=7 ./dev test 'made up'"])

    def test_long_errors_have_their_beginning_too(self):
        errors = "".join(f"error {number}\n" for number in range(100))
        lines = self.printed([{**log_line("FAIL", "output\n"), "stderr": errors}])
        self.assertEqual([line.strip() for line in lines[1:-1]],
                         [f"error {number}" for number in range(20)] + ["[...]"] + [f"error {number}" for number in range(81, 100)])

    def test_counted_elsewhere(self):
        self.assertEqual(self.closing_line([log_line("OK")], "--also-passed=2"), "3 passed, 0 failed")
        self.assertEqual(self.closing_line([log_line("OK")], "--also-failed=2"), "1 passed, 2 failed")

    def test_missing_log(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(summary.main(["/nonexistent/testlog.json"]), 1)
        self.assertTrue(printed.getvalue().endswith("0 passed, 1 failed\n"))


    def test_a_log_that_ends_early(self):
        with tempfile.NamedTemporaryFile("w+") as log, tempfile.NamedTemporaryFile("w+") as names, \
             contextlib.redirect_stdout(io.StringIO()) as printed:
            names.write("made up\nnot run\n")
            names.flush()
            log.write(json.dumps(log_line("OK")) + "\n")
            log.flush()
            self.assertEqual(summary.main([f"--names={names.name}", log.name]), 1)
            self.assertTrue(printed.getvalue().endswith("FAILED: not run has no result\n1 passed, 1 failed\n"))
            log.write('{"name":')
            log.flush()
            self.assertEqual(summary.main([log.name]), 1)


if __name__ == "__main__":
    unittest.main()
