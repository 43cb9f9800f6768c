# SPDX-License-Identifier: Apache-2.0
"""The package: its names, its types and its documentation."""

import ast
import copy
import inspect
import pickle
import subprocess
import sys
import unittest
from pathlib import Path

import numpy
import ranks

import rondo
from rondo import _core, _errors

try:
    import tblib.pickling_support
except ImportError:
    tblib = None


class Package(unittest.TestCase):
    def test_imports(self):
        """Importing Rondo imports neither PyTorch nor NumPy."""
        code = "import sys, rondo; assert not {'torch', 'numpy'} & set(sys.modules)"
        subprocess.run([sys.executable, "-B", "-c", code], check=True)

    def test_numbers(self):
        """The enums have the numbers of the library."""
        sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8E4M3": 1, "F8E5M2": 1, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I8": 1, "U8": 1, "U16": 2, "I16": 2}
        self.assertEqual([kind.name for kind in rondo.DType], list(sizes))
        with rondo.connect(rank=0, size=1) as c:
            for kind in rondo.DType:
                size = sizes[kind.name]
                c.broadcast(bytes(size), dtype=kind)
                wrong = memoryview(bytes(16)).cast("i" if size != 4 else "d")
                with self.assertRaisesRegex(rondo.InvalidArgumentError, f"items have {size} bytes, or one"):
                    c.broadcast(wrong, dtype=kind)
                self.assertEqual(c.describe("all_reduce", 1000, kind), c.describe("all_reduce", 1000, kind.name.lower()))
            for name in "float32", "torch.float32", numpy.float32, numpy.dtype("f4"):
                c.all_reduce(bytearray(8), dtype=name)
                with self.assertRaisesRegex(rondo.InvalidArgumentError, "items have 4 bytes, or one"):
                    c.broadcast(memoryview(bytes(16)).cast("d"), dtype=name)
            for name in "float", float, int, "byte", "complex64":  # not one type in NumPy and torch, or none here
                self.assertRaisesRegex(rondo.InvalidArgumentError, "is no element type", c.broadcast, bytes(8), dtype=name)

    def test_errors(self):
        """Each status has its class."""
        for status, kind in enumerate(_errors.CLASSES[1:], 1):
            self.assertEqual(kind.code.replace("_", " "), _core.status_name(status))
            self.assertIs(type(_errors.exception_of(status, "text")), kind)
        self.assertIs(type(_errors.exception_of(99, "text")), rondo.Error)
        self.assertEqual(_core.status_name(len(_errors.CLASSES)), "unknown")

    def test_errors_travel(self):
        """Errors keep class, attributes and notes where exceptions are copied between processes."""

        def made_anew(error):
            """Makes the exception as tblib does, which Dask uses: without the arguments of its class."""
            twin = type(error).__new__(type(error))
            twin.__dict__.update(error.__dict__)
            twin.args = error.args
            return twin

        ways = [copy.copy, copy.deepcopy, made_anew, *(lambda error, of=of: pickle.loads(pickle.dumps(error, of)) for of in range(pickle.HIGHEST_PROTOCOL + 1))]
        if tblib is not None:  # it changes how all exceptions are pickled
            tblib.pickling_support.install()
        for kind in _errors.CLASSES:
            class Own(kind):
                """A program's own."""
            self.addCleanup(setattr, sys.modules[__name__], "Own", None)
            Own.__qualname__ = "Own"
            sys.modules[__name__].Own = Own
            for error in kind("rank 2 lost rank 3"), Own("rank 2 lost rank 3"):
                error.step = 5
                for way in ways:
                    twin = way(error)
                    self.assertEqual((type(twin), str(twin), twin.args, twin.step), (type(error), str(error), error.args, 5))

    def test_names(self):
        """Whatever is public has a docstring, and __all__ is whole."""
        public = {name for name, value in vars(rondo).items() if not name.startswith("_") and not inspect.ismodule(value)}
        self.assertEqual(public, set(rondo.__all__))
        for name in rondo.__all__:
            value = getattr(rondo, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                self.assertTrue(value.__doc__, name)
                for member, function in vars(value).items() if inspect.isclass(value) else []:
                    if inspect.isfunction(function) and not member.startswith("_"):
                        self.assertTrue(function.__doc__, f"{name}.{member}")

    def test_stub(self):
        """_core.pyi has what _core has."""
        stub = ast.parse((Path(rondo.__file__).parent / "_core.pyi").read_text())
        self.assertTrue((Path(rondo.__file__).parent / "py.typed").exists())
        told = {node.name: {each.name for each in node.body if isinstance(each, ast.FunctionDef)} for node in stub.body if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
        names = {name for name in vars(_core) if not name.startswith("_")}
        self.assertEqual(names, functions | set(told))
        for name, members in told.items():
            real = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
            self.assertEqual(real, {member for member in members if not member.startswith("_")}, name)


if __name__ == "__main__":
    ranks.main()
