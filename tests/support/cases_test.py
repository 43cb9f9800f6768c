# SPDX-License-Identifier: Apache-2.0
"""Tests what scripts draw: successive seeds draw all cases, and scripts draw as programs do."""

import os
import unittest
from unittest import mock

import at_once
import cases


def with_seed(seed, what, which="change"):
    with mock.patch.dict(os.environ, RONDO_TEST_SEED=str(seed), RONDO_TEST_CASES=which):
        return what()


class Draws(unittest.TestCase):
    def test_the_hash_is_that_of_the_library(self):
        self.assertEqual((cases.mix_hash(10, 3), cases.mix_hash(50, 12345)), (12587370737594032228, 3554703562656025277))

    def test_each_number_is_drawn_once(self):
        for percent in 2, 10, 50:
            runs = 100 // percent
            for number in range(100):
                self.assertEqual(sum(with_seed(seed, lambda: cases.drawn(number, percent)) for seed in range(7, 7 + runs)), 1)

    def test_successive_seeds_have_all_cases(self):
        for size in range(1, 20):
            for count in range(1, size + 1):
                found = [with_seed(seed, lambda: cases.drawn_of(range(size), count)) for seed in range(3, 3 + -(-size // count))]
                self.assertEqual({case for one in found for case in one}, set(range(size)))
                self.assertEqual({len(one) for one in found}, {count})
                self.assertEqual(found[0], sorted(found[0]))

    def test_all_are_all(self):
        self.assertEqual(with_seed(5, lambda: cases.drawn_of("abc"), "all"), ["a", "b", "c"])
        self.assertTrue(with_seed(5, lambda: all(map(cases.drawn, range(100))), "all"))

    def test_tests_of_a_class(self):
        def tests_of(seed, *names):
            class Three(unittest.TestCase):
                test_a = test_b = test_c = other = lambda self: None
            case = with_seed(seed, lambda: cases.draws(1, *names)(Three))
            return [name for name in ("test_a", "test_b", "test_c", "other") if hasattr(case, name)]

        self.assertEqual(sorted(sum((tests_of(seed)[:1] for seed in range(3)), [])), ["test_a", "test_b", "test_c"])
        self.assertEqual([len(tests_of(seed, "test_a", "test_b")) for seed in range(3)], [3, 3, 3])


class AtOnce(unittest.TestCase):
    def test_what_tests_tell_arrives(self):
        class Four(unittest.TestCase):
            def test_good(self):
                pass

            def test_bad(self):
                for number in range(3):
                    with self.subTest(number):
                        self.assertEqual(number, 1)

            def test_error(self):
                raise OSError

            def test_skipped(self):
                self.skipTest("why")

        loaded = unittest.TestSuite([unittest.defaultTestLoader.loadTestsFromTestCase(Four)])
        for suites in at_once.by_test(2), at_once.by_class(2):
            result = unittest.TestResult()
            suites(None, loaded, None).run(result)
            self.assertEqual((result.testsRun, len(result.failures), len(result.errors), len(result.skipped)), (4, 2, 1, 1))
            loaded = unittest.TestSuite([unittest.defaultTestLoader.loadTestsFromTestCase(Four)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
