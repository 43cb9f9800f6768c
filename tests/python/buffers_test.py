# SPDX-License-Identifier: Apache-2.0
"""What is a buffer, and what each wrong argument is told."""

import array
import ctypes
import unittest

import numpy as np
import ranks

import rondo


def kinds(c):
    """Everything that has a buffer, and memory of Rondo."""
    total = sum(range(c.size))
    for data in [array.array("d", [c.rank] * 5), (ctypes.c_double * 5)(*[c.rank] * 5), memoryview(array.array("d", [c.rank] * 5))]:
        c.all_reduce(data)
        assert list(data) == [total] * 5, data

    words = bytearray(np.full(5, c.rank, np.float32).tobytes())
    c.all_reduce(words, dtype="f32")
    assert list(np.frombuffer(words, np.float32)) == [total] * 5

    out = bytearray(3 * c.size)
    c.all_gather(b"abc", out)
    assert out == b"abc" * c.size

    memory = c.allocate(4096)
    assert len(memory) == 4096 and not any(memoryview(memory))
    zeros = c.zeros((2, 3), "f8")
    assert zeros.shape == (2, 3) and zeros.dtype == np.float64 and not zeros.any() and zeros.flags.writeable
    zeros += c.rank
    c.all_reduce(zeros)
    assert (zeros == total).all()

    scalar = np.array(c.rank)
    c.all_reduce(scalar)
    assert scalar == total
    empty = np.zeros((0, 4), np.float32)
    c.all_reduce(empty)
    c.all_gather(empty, empty)

    # A read-only input, and the root's of a broadcast.
    fixed = np.full(3, c.rank)
    fixed.flags.writeable = False
    out = np.zeros_like(fixed)
    c.all_reduce(fixed, out)
    assert (out == total).all()
    c.broadcast(fixed if c.rank == 0 else out, root=0)
    assert c.rank == 0 or not out.any()

    with c.register(fixed.copy()), c.register(words):
        c.all_reduce(words, op=rondo.ReduceOp.MAX, dtype=rondo.DType.F32)
    # Not registered any more, so it may grow.
    words += b"more"


def memory_outlives(c):
    """Memory of Rondo may be used after its communicator was closed."""
    x = c.zeros(1000)
    c.all_reduce(x)
    c.close()
    x += 1
    assert x.sum() == 1000


class Buffers(ranks.Case):
    def test_kinds(self):
        self.run_ranks(1, kinds)
        self.run_ranks(2, kinds)

    def test_memory_outlives_its_communicator(self):
        self.run_ranks(2, memory_outlives)


class Refusals(unittest.TestCase):
    """Wrong arguments are refused at once, and the communicator lives on."""

    @classmethod
    def setUpClass(cls):
        cls.c = rondo.connect(rank=0, size=1)

    @classmethod
    def tearDownClass(cls):
        cls.c.close()

    def setUp(self):
        self.x = np.ones(6, np.float32)

    def refused(self, pattern, function, *arguments, **keywords):
        with self.assertRaisesRegex(rondo.InvalidArgumentError, pattern):
            function(*arguments, **keywords)
        self.c.all_reduce(self.x)

    def test_memory(self):
        fixed = np.ones(6)
        fixed.flags.writeable = False
        self.refused("^all_reduce: data is read-only: an output needs a writable buffer$", self.c.all_reduce, fixed)
        self.refused("^all_reduce: out is read-only", self.c.all_reduce, fixed, fixed)
        self.refused("^all_gather: out is read-only", self.c.all_gather, b"abc", b"abc")
        self.refused("^receive: out is read-only", self.c.receive, b"abc", 0)
        grid = np.ones((4, 4))
        copied = r"^all_reduce: data is not contiguous in C order: give copy = numpy.ascontiguousarray\(data\), and after the call write data\[...\] = copy$"
        for strided in grid[:, 1], grid.T, grid[::-1], memoryview(grid).cast("B")[::2]:
            self.refused(copied, self.c.all_reduce, strided)
        self.refused(r"^all_gather: data is not contiguous in C order: give numpy.ascontiguousarray\(data\)$", self.c.all_gather, grid.T, grid)
        self.refused(r"^all_gather: out is not contiguous in C order: give copy = .*\(out\), and after the call write out\[...\] = copy$", self.c.all_gather, grid, grid.T)
        self.refused("^send: data is a list, which has no buffer: give a NumPy array", self.c.send, [1, 2], 0)
        self.refused("^all_reduce: data is a float, which has no buffer: give a NumPy array", self.c.all_reduce, 1.5)
        self.refused("^broadcast: data is a NoneType, which has no buffer", self.c.broadcast, None)
        self.refused(r"^all_reduce: data is a float32, which cannot change: give numpy.array\(\) of it$", self.c.all_reduce, self.x.sum())
        self.refused("elements of this format can be moved, not reduced", self.c.all_reduce, np.zeros(2, "M8[s]"))
        self.refused("^register: data is read-only", self.c.register, b"abc")

    def test_objects_of_other_packages(self):
        """The error for an object without a buffer says what to give instead."""

        class Tensor:
            __module__ = "torch"

            def __init__(self, device):
                self.device = device

            def __dlpack_device__(self):
                return self.device, 0

            def __dlpack__(self):
                raise AssertionError("it is not taken")

        class Array(Tensor):
            __module__ = "jax"

        class OnGpu:
            __cuda_array_interface__ = {}

        class Series:
            def __array__(self):
                raise AssertionError("it is not taken")

        self.refused(r"^all_reduce: data is a Tensor, which has no buffer: give tensor.detach\(\).numpy\(\), which shares its memory", self.c.all_reduce, Tensor(1))
        self.refused("is a Tensor, which is not in host memory: copy it there .*tensor.cpu", self.c.all_reduce, Tensor(2))
        self.refused("is a Array, which has no buffer: give numpy.from_dlpack", self.c.all_reduce, Array(3))
        self.refused("is a OnGpu, which is not in host memory", self.c.all_reduce, OnGpu())
        self.refused("is a Series, which has no buffer: give numpy.asarray", self.c.all_reduce, Series())

    def test_types_in_the_other_byte_order(self):
        for kind in ">f4", ">i8":
            values = np.ones(2, kind)
            self.refused("is no element type", self.c.all_reduce, values, dtype=values.dtype)

    def test_python_objects_are_not_bytes(self):
        # NumPy gives dates and strings of any length no format.
        strings = [np.dtypes.StringDType()] if hasattr(getattr(np, "dtypes", None), "StringDType") else []
        for kind in "O", [("a", "f8"), ("b", "O")], [("a", "M8[s]"), ("b", "O")], *strings:
            for keywords in {}, {"dtype": "u8"}, {"dtype": "f64"}:
                self.refused("^broadcast: data has Python objects as items", self.c.broadcast, np.zeros(2, kind), **keywords)
        self.c.broadcast(np.zeros(2, [("O", "f8")]))

    def test_counts(self):
        five, six = np.ones(5, np.float32), np.ones(6, np.float64)
        self.refused("^all_reduce: out has 5 elements and data has 6: give the same number$", self.c.all_reduce, self.x, five)
        self.refused("^all_reduce: data and out have elements of different types", self.c.all_reduce, self.x, six)
        self.refused("^all_gather: out has 5 elements and data has 6", self.c.all_gather, self.x, five)
        self.refused("^reduce_scatter: data has 6 elements and out has 5", self.c.reduce_scatter, self.x, five)
        self.refused("^gather: out has 5", self.c.gather, self.x, five)
        self.refused("^scatter: data has 6", self.c.scatter, self.x, five)
        self.refused("^all_to_all: out has 5", self.c.all_to_all, self.x, five)
        self.refused("counts has 2 counts: give one for each of the 1 ranks", self.c.all_gather_v, self.x, self.x, [3, 3])
        self.refused("counts must be integers, 0 or more", self.c.all_gather_v, self.x, self.x, [-1])
        self.refused("counts must be integers, 0 or more", self.c.all_gather_v, self.x, self.x, ["a"])
        self.refused("data has 6 elements, but the counts say 5", self.c.all_gather_v, self.x, self.x, [5])
        self.refused("out has 5 elements, but the counts say 6", self.c.reduce_scatter_v, self.x, five, [6])
        self.refused("data has 6 elements, but the counts say 7", self.c.all_to_all_v, self.x, [7], np.ones(6, np.float32), [6])

    def test_values(self):
        self.refused("'sums' is no reduction; possible are: sum, mean,", self.c.all_reduce, self.x, op="sums")
        self.refused("8 is no reduction", self.c.all_reduce, self.x, op=8)
        self.refused("'f33' is no element type; possible are: f64,", self.c.all_reduce, self.x, dtype="f33")
        self.refused("data has 24 bytes in items of 4: with this dtype items have 8 bytes, or one", self.c.all_reduce, self.x, dtype="f64")
        self.refused("data has 3 bytes in items of 1", self.c.all_reduce, bytearray(3), dtype="bf16")
        self.refused("deadline is -1: give seconds, 0 or more", self.c.all_reduce, self.x, deadline=-1)
        self.refused("deadline is 'soon'", self.c.all_reduce, self.x, deadline="soon")
        self.refused("label is 3: give text", self.c.all_reduce, self.x, label=3)
        self.refused("tag is -1: give an integer from 0", self.c.send, self.x, 0, tag=-1)
        self.refused("tag is 4294967296: give an integer from 0", self.c.send, self.x, 0, tag=2**32)
        self.refused("root", self.c.broadcast, self.x, root=1)
        self.refused("1", self.c.send, self.x, 1)
        with self.assertRaisesRegex(TypeError, "'dead_line'; possible are: dtype, wait, deadline"):
            self.c.all_reduce(self.x, dead_line=3)
        with self.assertRaises(TypeError):
            self.c.all_reduce(self.x, scale="two")

    def test_reductions_without_meaning(self):
        self.refused("booleans have no sum: reduce them with max", self.c.all_reduce, np.array([True]))
        self.refused("complex numbers can be summed and averaged only", self.c.all_reduce, np.ones(2, complex), op="max")
        self.refused("elements of this format can be moved, not reduced", self.c.all_reduce, np.ones(2, np.longdouble))
        self.refused("elements of this format can be moved, not reduced", self.c.all_reduce, np.ones(2, ">f4"))
        self.refused("bit", self.c.all_reduce, self.x, op="bit_or")

    def test_options(self):
        for options, pattern in [({"rank": -1}, "rank is -1: give an integer from 0"), ({"size": "2"}, "size is '2'"), ({"ports": 5}, "ports is 5"),
                                 ({"ports": (5, 70000)}, "70000: give an integer from 1 to 65535"), ({"deadline": "x"}, "deadline is 'x'"),
                                 ({"transports": 3}, "transports is 3: give text"), ({"wait": "smoke"}, "smoke"), ({"rank": 3, "size": 2}, "3")]:
            with self.subTest(options=options), self.assertRaisesRegex(rondo.InvalidArgumentError, pattern):
                rondo.connect(**options)
        with self.assertRaises(TypeError):
            rondo.connect(color=3)


if __name__ == "__main__":
    ranks.main()
