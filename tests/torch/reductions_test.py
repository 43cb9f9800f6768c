#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every reduction of every type against a reference, and what is refused."""

import torch
import torch._dynamo  # noqa: F401  (as in ddp_test.py)
import torch.distributed as dist
from devices import REAL_GPUS, DeviceTest, each_device, gpus, main, ramp
from ranks import on_ranks
from torch.distributed import ReduceOp

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
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


@each_device
class Reductions(DeviceTest):
    def numbers(self, dtype):
        return self.put(numbers(dtype, self.rank))

    def same(self, found, expected):
        # Bytes, so that a truth value of 2 is seen.
        found = self.values(found)
        self.assertTrue(
            torch.equal(found.contiguous().view(torch.uint8), expected.view(torch.uint8)),
            f"{found} is not {expected}",
        )

    @on_ranks(SIZE)
    def test_all_operations_and_types(self):
        for op, dtype in cases():
            with self.subTest(op=op, dtype=dtype):
                expected = reference(op, dtype)
                tensor = self.numbers(dtype)
                dist.all_reduce(tensor, op)
                self.same(tensor, expected)
                tensor = self.numbers(dtype)
                dist.all_reduce(tensor, op, async_op=True).wait()
                self.same(tensor, expected)
                tensor = self.numbers(dtype)
                dist.reduce(tensor, 1, op)
                self.same(tensor, expected if self.rank == 1 else numbers(dtype, self.rank))
                block = self.put(torch.zeros(4, dtype=dtype))
                dist.reduce_scatter_tensor(block, self.numbers(dtype), op)
                self.same(block, expected[4 * self.rank :][:4].clone())
                dist.reduce_scatter(block, list(self.numbers(dtype).split(4)), op)
                self.same(block, expected[4 * self.rank :][:4].clone())

    @on_ranks(SIZE)
    def test_several_segments(self):
        count = 3_000_003 if REAL_GPUS else 100_005
        for dtype in [*FLOATS, torch.int64, torch.int32, torch.uint8]:
            inputs = torch.stack([ramp(rank, count, dtype) for rank in range(SIZE)])
            for op, expected in (ReduceOp.SUM, inputs.sum(0, dtype=dtype)), (ReduceOp.MAX, inputs.amax(0)):
                tensor = self.put(inputs[self.rank].clone())
                dist.all_reduce(tensor, op)
                self.assertValues(tensor, expected)
            tensor, whole = self.put(inputs[self.rank].clone()), self.put(torch.zeros_like(inputs))
            dist.all_gather_into_tensor(whole, tensor)
            self.assertValues(whole, inputs)
            block = self.put(torch.zeros(count // SIZE, dtype=dtype))
            dist.reduce_scatter_tensor(block, tensor)
            self.assertValues(block, inputs.sum(0, dtype=dtype).view(SIZE, -1)[self.rank])
        tensor = self.put(ramp(self.rank, count))
        dist.reduce(tensor, 1, op=ReduceOp.AVG)
        if self.rank == 1:
            mean = sum(ramp(rank, count) for rank in range(SIZE)) / SIZE
            torch.testing.assert_close(self.values(tensor), mean)

    @on_ranks(8)
    def test_eight_ranks(self):
        for count in 1, 1000, 1_000_003 if REAL_GPUS else 100_003:
            tensor = self.put(torch.full((count,), self.rank + 1.0))
            dist.all_reduce(tensor)
            self.assertValues(tensor, torch.full((count,), 36.0))

    @on_ranks(SIZE)
    def test_averages(self):
        for dtype in FLOATS:
            mean = sum(numbers(dtype, rank).double() for rank in range(SIZE)) / SIZE
            tensor = self.numbers(dtype)
            dist.all_reduce(tensor, ReduceOp.AVG)
            torch.testing.assert_close(self.values(tensor), mean.to(dtype))
        for dtype in INTEGERS:  # their sums do not fit
            limits = torch.iinfo(dtype)
            tensor = self.put(torch.tensor([limits.max, limits.min, limits.max - 2 + self.rank], dtype=dtype))
            dist.all_reduce(tensor, ReduceOp.AVG)
            self.assertEqual(self.values(tensor).tolist(), [limits.max, limits.min, limits.max - 1])
        with self.assertRaisesRegex(ValueError, "an average of Bool is not possible"):
            dist.all_reduce(self.numbers(torch.bool), ReduceOp.AVG)

    @on_ranks(SIZE)
    def test_factors_that_differ_between_ranks(self):
        for dtype in FLOATS:
            for factor in (0.5 * (self.rank + 1), torch.tensor([0.5 * (self.rank + 1)])):
                tensor = self.numbers(dtype)
                dist.all_reduce(tensor, ReduceOp.PREMUL_SUM(factor))
                expected = sum(0.5 * (r + 1) * numbers(dtype, r).double() for r in range(SIZE))
                torch.testing.assert_close(self.values(tensor), expected.to(dtype))
        block = self.put(torch.zeros(2))
        dist.reduce_scatter_tensor(block, self.put(torch.ones(6)), ReduceOp.PREMUL_SUM(self.rank + 1.0))
        self.assertValues(block, torch.tensor([6.0, 6.0]))
        # Partial sums of the unscaled inputs would overflow.
        large = self.put(torch.full((4,), 40000.0, dtype=torch.float16))
        dist.all_reduce(large, ReduceOp.PREMUL_SUM(0.25))
        self.assertEqual(self.values(large).tolist(), [30000.0] * 4)
        with self.assertRaisesRegex(ValueError, "PREMUL_SUM"):
            dist.all_reduce(self.put(torch.ones(2, dtype=torch.int32)), ReduceOp.PREMUL_SUM(2.0))

    @on_ranks(2)
    def test_nan_on_any_rank(self):
        for op in (ReduceOp.MIN, ReduceOp.MAX):
            for where in range(2):
                tensor = torch.ones(5)
                if self.rank == where:
                    tensor[3] = torch.nan
                tensor = self.put(tensor)
                dist.all_reduce(tensor, op)
                self.assertEqual(self.values(tensor).isnan().tolist(), [False, False, False, True, False])

    @on_ranks(2)
    def test_refusals_leave_the_group_usable(self):
        """Refusals come at once, on every rank, before anything has started."""
        for async_op in False, True:
            with self.assertRaisesRegex(ValueError, "a reduction of .* is not possible"):
                dist.all_reduce(self.put(torch.zeros(8, dtype=torch.uint8).view(torch.float8_e4m3fnuz)), async_op=async_op)
        for dtype in FLOATS:
            for op in BITS:
                with self.assertRaisesRegex(ValueError, r"ReduceOp\.B\w+ of .* is not possible"):
                    dist.all_reduce(self.put(torch.ones(4, dtype=dtype)), op)
        group = dist.distributed_c10d._get_default_group()
        with self.assertRaisesRegex(ValueError, "is on meta: Rondo moves tensors in host memory and on CUDA"):
            group._get_backend(torch.device("cpu")).allreduce([torch.ones(2, device="meta")])
        if self.on_gpu:
            self.refuse_mixed_devices(group)
        tensor = self.put(torch.ones(4))
        dist.all_reduce(tensor)
        self.assertValues(tensor, torch.full((4,), 2.0))

    def refuse_mixed_devices(self, group):
        for async_op in False, True:
            with self.assertRaisesRegex(ValueError, "a sparse tensor is on cuda:.*need them on the CPU"):
                dist.all_reduce(gpus.empty_sparse(), async_op=async_op)
        four, zeros = self.put(torch.zeros(4)), torch.zeros(4)
        if gpus.count() > 1:
            with self.assertRaisesRegex(ValueError, "one tensor of a call is on cuda:. and another on cuda:."):
                group.allreduce_coalesced([gpus.to_gpu(zeros, gpu) for gpu in range(2)])
        with self.assertRaisesRegex(ValueError, "one tensor of a call is on cuda:. and another on cpu"):
            group.allreduce_coalesced([four, zeros])
        with self.assertRaisesRegex(ValueError, "one tensor of a call is on cuda:. and another on cpu"):
            dist.all_gather_into_tensor(torch.zeros(8), four)
        with self.assertRaisesRegex(ValueError, "on different devices"):
            dist.all_gather([zeros, four], torch.zeros(4))

    @on_ranks(2)
    def test_complex(self):
        def equal(found, expected):
            self.assertEqual(self.values(found).tolist(), expected.tolist())

        for dtype in torch.complex32, torch.complex64, torch.complex128:
            whole = torch.tensor([1 + 2j, 3j, 5, -4j]).to(dtype)

            def own(whole=whole):
                return self.put((whole.cdouble() * (self.rank + 1)).to(whole.dtype))

            for op, times in (ReduceOp.SUM, 3), (ReduceOp.AVG, 1.5), (ReduceOp.PREMUL_SUM(0.5), 1.5):
                with self.subTest(dtype=dtype, op=op):
                    expected = (whole.cdouble() * times).to(dtype)
                    tensor = own()
                    dist.all_reduce(tensor, op)
                    equal(tensor, expected)
                    tensor = own()
                    dist.reduce(tensor, 1, op)
                    equal(tensor, expected if self.rank == 1 else whole)
                    block = self.put(torch.zeros(2, dtype=dtype))
                    for scatter in (
                        lambda: dist.reduce_scatter(block, list(own().split(2)), op),
                        lambda: dist.reduce_scatter_tensor(block, own(), op),
                    ):
                        scatter()
                        equal(block, expected.split(2)[self.rank])
            uneven = self.put(torch.zeros(3 if self.rank == 0 else 1, dtype=dtype))
            dist.reduce_scatter(uneven, list(own().split([3, 1])))
            equal(uneven, (whole.cdouble() * 3).to(dtype).split([3, 1])[self.rank])
            for op in *set(ARITHMETIC) - {ReduceOp.SUM}, *BITS:
                for refused in (
                    lambda: dist.reduce(own(), 1, op),
                    lambda: dist.reduce_scatter_tensor(self.put(torch.zeros(2, dtype=dtype)), own(), op),
                ):
                    with self.assertRaisesRegex(ValueError, r"ReduceOp\.\w+ of Complex.* is not possible: complex numbers are summed"):
                        refused()

    @on_ranks(2)
    def test_layouts(self):
        """Results go back into tensors of any strides."""
        for make in (
            lambda: torch.ones(()),
            lambda: torch.ones(0, 3),
            lambda: torch.ones(4, 5).t(),
            lambda: ramp(0, 6000).view(100, 60).t(),
            lambda: torch.ones(12)[::3],
            lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        ):
            for async_op in (False, True):
                tensor = self.put(make())
                strides = tensor.stride()
                work = dist.all_reduce(tensor, async_op=async_op)
                if async_op:
                    work.wait()
                self.assertValues(tensor, 2 * make())
                self.assertEqual(tensor.stride(), strides)
        # Ranks whose strides differ agree about elements.
        square = torch.arange(6.0).view(2, 3)
        tensor = self.put(square.clone() if self.rank == 0 else square.t().clone().t())
        dist.all_reduce(tensor)
        self.assertValues(tensor, 2 * square)

    @on_ranks(2)
    def test_tensors_of_autograd(self):
        for async_op in (False, True):
            weight = torch.nn.Parameter(self.put(torch.ones(2, 3).t()))
            self.assertFalse(weight.is_contiguous())
            work = dist.all_reduce(weight, async_op=async_op)
            if async_op:
                work.wait()
            self.assertTrue(weight.is_leaf)
            self.assertValues(weight.detach(), torch.full((3, 2), 2.0))
        with torch.inference_mode():
            tensor = self.put(torch.ones(2, 3).t())
            dist.all_reduce(tensor, async_op=True).get_future().wait()
        self.assertValues(tensor, torch.full((3, 2), 2.0))


if __name__ == "__main__":
    main()
