#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every reduction of every type against a reference, and what is refused."""

import unittest

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks
from torch.distributed import ReduceOp

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]
BITS = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or,
        ReduceOp.BXOR: torch.bitwise_xor}  # fmt: skip
ARITHMETIC = {ReduceOp.SUM: torch.add, ReduceOp.PRODUCT: torch.mul, ReduceOp.MIN: torch.minimum,
              ReduceOp.MAX: torch.maximum}  # fmt: skip
LOGICAL = {ReduceOp.SUM: torch.logical_or, ReduceOp.MAX: torch.logical_or,
           ReduceOp.BOR: torch.logical_or, ReduceOp.PRODUCT: torch.logical_and,
           ReduceOp.MIN: torch.logical_and, ReduceOp.BAND: torch.logical_and,
           ReduceOp.BXOR: torch.logical_xor}  # fmt: skip
SIZE = 3


def numbers(dtype, rank, count=12):
    """Small whole numbers, so that sums are exact in every type."""
    random = torch.randint(0, 4, (count,), generator=torch.Generator().manual_seed(rank))
    return random.bitwise_and_(1).bool() if dtype == torch.bool else random.to(dtype)


def reference(op, dtype):
    function = (LOGICAL if dtype == torch.bool else {**ARITHMETIC, **BITS})[op]
    result = numbers(dtype, 0)
    for rank in range(1, SIZE):
        result = function(result, numbers(dtype, rank))
    return result


def cases():
    for dtype in FLOATS:
        yield from ((op, dtype) for op in ARITHMETIC)
    for dtype in INTEGERS:
        yield from ((op, dtype) for op in {**ARITHMETIC, **BITS})
    yield from ((op, torch.bool) for op in LOGICAL)


class Reductions(RankTest):
    def same(self, found, expected):
        # Bytes, so that a truth value of 2 is seen.
        self.assertTrue(
            torch.equal(found.contiguous().view(torch.uint8), expected.view(torch.uint8)),
            f"{found} is not {expected}",
        )

    @on_ranks(SIZE)
    def test_all_operations_and_types(self):
        for op, dtype in cases():
            with self.subTest(op=op, dtype=dtype):
                expected = reference(op, dtype)
                tensor = numbers(dtype, self.rank)
                dist.all_reduce(tensor, op)
                self.same(tensor, expected)
                tensor = numbers(dtype, self.rank)
                dist.all_reduce(tensor, op, async_op=True).wait()
                self.same(tensor, expected)
                tensor = numbers(dtype, self.rank)
                dist.reduce(tensor, 1, op)
                self.same(tensor, expected if self.rank == 1 else numbers(dtype, self.rank))
                block = torch.zeros(4, dtype=dtype)
                dist.reduce_scatter_tensor(block, numbers(dtype, self.rank), op)
                self.same(block, expected[4 * self.rank :][:4].clone())
                dist.reduce_scatter(block, list(numbers(dtype, self.rank).split(4)), op)
                self.same(block, expected[4 * self.rank :][:4].clone())

    @on_ranks(SIZE)
    def test_averages(self):
        for dtype in FLOATS:
            mean = sum(numbers(dtype, rank).double() for rank in range(SIZE)) / SIZE
            tensor = numbers(dtype, self.rank)
            dist.all_reduce(tensor, ReduceOp.AVG)
            torch.testing.assert_close(tensor, mean.to(dtype))
        for dtype in [*INTEGERS, torch.bool]:
            with self.assertRaisesRegex(ValueError, "an average of .* is not possible"):
                dist.all_reduce(numbers(dtype, self.rank), ReduceOp.AVG)

    @on_ranks(SIZE)
    def test_factors_that_differ_between_ranks(self):
        for dtype in FLOATS:
            for factor in (0.5 * (self.rank + 1), torch.tensor([0.5 * (self.rank + 1)])):
                tensor = numbers(dtype, self.rank)
                dist.all_reduce(tensor, ReduceOp.PREMUL_SUM(factor))
                expected = sum(0.5 * (r + 1) * numbers(dtype, r).double() for r in range(SIZE))
                torch.testing.assert_close(tensor, expected.to(dtype))
        block = torch.zeros(2)
        dist.reduce_scatter_tensor(block, torch.ones(6), ReduceOp.PREMUL_SUM(self.rank + 1.0))
        self.assertEqual(block.tolist(), [6.0, 6.0])
        # Partial sums of the unscaled inputs would overflow.
        large = torch.full((4,), 40000.0, dtype=torch.float16)
        dist.all_reduce(large, ReduceOp.PREMUL_SUM(0.25))
        self.assertEqual(large.tolist(), [30000.0] * 4)
        with self.assertRaisesRegex(ValueError, "PREMUL_SUM"):
            dist.all_reduce(torch.ones(2, dtype=torch.int32), ReduceOp.PREMUL_SUM(2.0))

    @on_ranks(2)
    def test_nan_on_any_rank(self):
        for op in (ReduceOp.MIN, ReduceOp.MAX):
            for where in range(2):
                tensor = torch.ones(5)
                if self.rank == where:
                    tensor[3] = torch.nan
                dist.all_reduce(tensor, op)
                self.assertEqual(tensor.isnan().tolist(), [False, False, False, True, False])

    @on_ranks(2)
    def test_refusals_leave_the_group_usable(self):
        for dtype in (torch.float8_e4m3fnuz, torch.int16, torch.uint16):
            with self.assertRaisesRegex(ValueError, "a reduction of .* is not possible"):
                dist.all_reduce(torch.zeros(4, dtype=torch.uint8).repeat(2).view(dtype))
        for dtype in FLOATS:
            for op in BITS:
                with self.assertRaisesRegex(ValueError, r"ReduceOp\.B\w+ of .* is not possible"):
                    dist.all_reduce(torch.ones(4, dtype=dtype), op)
        with self.assertRaisesRegex(ValueError, "is on meta"):
            dist.group.WORLD._get_backend(torch.device("cpu")).allreduce(
                [torch.ones(2, device="meta")]
            )
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [2.0] * 4)

    @on_ranks(2)
    def test_complex(self):
        tensor = torch.tensor([1 + 2j, 3j]) * (self.rank + 1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [3 + 6j, 9j])

    @on_ranks(2)
    def test_layouts(self):
        for make in (
            lambda: torch.ones(()),
            lambda: torch.ones(0, 3),
            lambda: torch.ones(4, 5).t(),
            lambda: torch.ones(12)[::3],
            lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        ):
            for async_op in (False, True):
                tensor = make()
                strides = tensor.stride()
                work = dist.all_reduce(tensor, async_op=async_op)
                if async_op:
                    work.wait()
                self.assertTrue(torch.equal(tensor, 2 * make()))
                self.assertEqual(tensor.stride(), strides)
        # Ranks whose strides differ agree about elements.
        square = torch.arange(6.0).view(2, 3)
        tensor = square.clone() if self.rank == 0 else square.t().clone().t()
        dist.all_reduce(tensor)
        self.assertTrue(torch.equal(tensor, 2 * square))

    @on_ranks(2)
    def test_tensors_of_autograd(self):
        for async_op in (False, True):
            weight = torch.nn.Parameter(torch.ones(2, 3).t())
            self.assertFalse(weight.is_contiguous())
            work = dist.all_reduce(weight, async_op=async_op)
            if async_op:
                work.wait()
            self.assertTrue(weight.is_leaf)
            self.assertTrue(torch.equal(weight.detach(), torch.full((3, 2), 2.0)))
        with torch.inference_mode():
            tensor = torch.ones(2, 3).t()
            dist.all_reduce(tensor, async_op=True).get_future().wait()
        self.assertTrue(torch.equal(tensor, torch.full((3, 2), 2.0)))


if __name__ == "__main__":
    unittest.main()
