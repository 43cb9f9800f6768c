# SPDX-License-Identifier: Apache-2.0
"""Code that buffer_of or the headers cannot accept gives one readable error.
Usage: buffer_of_refuses_test.py INCLUDE COMPILER..."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from cases import drawn_of  # noqa: E402

INCLUDE, *COMPILER = sys.argv[1:]
sys.argv[1:] = []


def errors(code, standard="c++20"):
    """The error lines of the compiler."""
    result = subprocess.run([*COMPILER, f"-std={standard}", "-fsyntax-only", "-I", INCLUDE, "-x", "c++", "-"], input=code,
                            capture_output=True, text=True, timeout=300)
    return [line for line in result.stderr.splitlines() if "error:" in line]


def errors_of(declaration, expression):
    return errors(f"#include <rondo/types.h>\n#include <list>\n#include <vector>\n#include <string>\n"
                  f"void f() {{ {declaration}; (void)rondo::buffer_of({expression}); }}\n")


class Refuses(unittest.TestCase):
    def check(self, declaration, expression, *wanted):
        lines = errors_of(declaration, expression)
        self.assertEqual(len(lines), 1, lines)
        for text in wanted:
            self.assertIn(text, lines[0])

    def test_good_code_compiles(self):
        self.assertEqual(errors_of("const std::vector<float> v(3)", "v"), [])

    def test_types_without_a_dtype(self):
        for declaration in drawn_of(("std::vector<long double> v(1)", "bool v[2] = {}", "struct S { int a; }; std::vector<S> v(1)",
                                     "std::vector<std::string> v(1)", "int* v[2] = {}")):
            self.check(declaration, "v", "this element type has no DType", "float, double, integers", "rondo::Buffer{pointer, bytes")

    def test_what_is_not_contiguous(self):
        for declaration in drawn_of(("std::list<float> v(1)", "std::vector<bool> v(1)", "float v = 1", "float* v = nullptr")):
            self.check(declaration, "v", "takes contiguous elements", "std::span(&value, 1)")

    def test_a_temporary_container(self):
        self.check("", "std::vector<float>(3)", "borrows memory")

    def test_an_older_standard_is_told_first(self):
        for header in drawn_of(("types.h", "communicator.h", "options.h", "gradients.h", "batch_norm.h", "work.h", "error.h", "store.h"), 2):
            lines = errors(f"#include <rondo/{header}>\n", "c++17")
            self.assertIn("Rondo's C++ headers need C++20: compile with -std=c++20", lines[0], header)
        self.assertEqual(errors("#include <rondo/c.h>\n", "c++11"), [])


unittest.main(verbosity=2)
