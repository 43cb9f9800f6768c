#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operation that moves data, for every type and layout, blocking, async and by future."""

import unittest
import warnings

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks

warnings.filterwarnings("ignore", "ComplexHalf")

TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64, torch.bool, torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


def values(count, dtype, seed):
    """Numbers of the type that differ with the seed, as any bits are right for a move."""
    bits = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8,
                         generator=torch.Generator().manual_seed(seed))  # fmt: skip
    return bits.bitwise_and_(1).view(torch.bool) if dtype == torch.bool else bits.view(dtype)


def bytes_of(tensor):
    tensor = tensor.contiguous()
    return tensor.view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)


def shaped(tensor, layout):
    """The elements in another layout of memory."""
    if layout == "scalar":
        return tensor[:1].clone().view(())
    if layout == "empty":
        return tensor[:0].clone().view(0, 3)
    if layout == "flat":
        return tensor.clone()
    if layout == "transposed":
        result = torch.empty(3, tensor.numel() // 3, dtype=tensor.dtype).t()
        return result.copy_(tensor.view(result.shape))
    if layout == "strided":
        result = torch.empty(2 * tensor.numel(), dtype=tensor.dtype)[::2]
        return result.copy_(tensor)
    assert layout == "channels_last"
    return tensor.view(2, 3, 2, -1).clone(memory_format=torch.channels_last)


LAYOUTS = ["scalar", "empty", "flat", "transposed", "strided", "channels_last"]


def finish(work, way):
    """An operation has been started with async_op = (way != "blocking")."""
    if way == "wait":
        work.wait()
    elif way == "future":
        work.get_future().wait()
    elif way == "poll":
        while not work.is_completed():
            pass


class Moves(RankTest):
    def cases(self):
        for dtype in TYPES:
            yield "flat", dtype, "blocking"
        for layout in LAYOUTS:
            for way in ("blocking", "wait", "future", "poll"):
                yield layout, torch.float32, way
        for layout in LAYOUTS:
            yield layout, torch.float8_e5m2fnuz, "wait"
            yield layout, torch.complex128, "future"

    def each(self, operation):
        """operation(make, expect, empty, way): makes inputs of ranks and compares outputs."""
        for layout, dtype, way in self.cases():
            def make(rank, part=0):
                return shaped(values(24, dtype, 100 * rank + part), layout)

            def expect(found, rank, part=0):
                self.assertTrue(torch.equal(bytes_of(found), bytes_of(make(rank, part))))

            def empty():
                return torch.zeros_like(make(0), memory_format=torch.preserve_format)

            with self.subTest(layout=layout, dtype=dtype, way=way):
                operation(make, expect, empty, way)

    @on_ranks(3)
    def test_broadcast(self):
        def broadcast(make, expect, empty, way):
            for root in range(self.size):
                tensor = make(self.rank)
                finish(dist.broadcast(tensor, root, async_op=way != "blocking"), way)
                expect(tensor, root)

        self.each(broadcast)

    @on_ranks(3)
    def test_all_gather(self):
        def all_gather(make, expect, empty, way):
            outputs = [empty() for _ in range(self.size)]
            finish(dist.all_gather(outputs, make(self.rank), async_op=way != "blocking"), way)
            for rank, output in enumerate(outputs):
                expect(output, rank)

        self.each(all_gather)

    @on_ranks(3)
    def test_gather_and_scatter(self):
        def gather(make, expect, empty, way):
            here = self.rank == 1
            outputs = [empty() for _ in range(self.size)] if here else None
            finish(dist.gather(make(self.rank), outputs, 1, async_op=way != "blocking"), way)
            for rank, output in enumerate(outputs or []):
                expect(output, rank)

        def scatter(make, expect, empty, way):
            inputs = [make(2, part) for part in range(self.size)] if self.rank == 2 else None
            output = empty()
            finish(dist.scatter(output, inputs, 2, async_op=way != "blocking"), way)
            expect(output, 2, self.rank)

        self.each(gather)
        self.each(scatter)

    @on_ranks(3)
    def test_all_to_all(self):
        def all_to_all(make, expect, empty, way):
            inputs = [make(self.rank, part) for part in range(self.size)]
            outputs = [empty() for _ in range(self.size)]
            finish(dist.all_to_all(outputs, inputs, async_op=way != "blocking"), way)
            for rank, output in enumerate(outputs):
                expect(output, rank, self.rank)

        self.each(all_to_all)

    @on_ranks(3)
    def test_messages(self):
        def ring(make, expect, empty, way):
            before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
            output = empty()
            sent = dist.isend(make(self.rank), after)
            if way == "blocking":
                dist.recv(output, before)
            else:
                finish(dist.irecv(output, before), way)
            sent.wait()
            expect(output, before)

        self.each(ring)

    @on_ranks(3)
    def test_tensors_of_all_ranks_in_one(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                whole = torch.zeros(self.size, 4, dtype=torch.uint8).repeat(1, dtype.itemsize)
                whole = whole.view(dtype)
                own = values(4, dtype, self.rank)
                every = torch.cat([bytes_of(values(4, dtype, r)) for r in range(self.size)])
                dist.all_gather_into_tensor(whole, own)
                self.assertTrue(torch.equal(bytes_of(whole), every))
                whole.view(torch.uint8).zero_()
                whole[self.rank].view(torch.uint8).copy_(own.view(torch.uint8))
                dist.all_gather_into_tensor(whole, whole[self.rank])  # in its place
                self.assertTrue(torch.equal(bytes_of(whole), every))

    @on_ranks(3)
    def test_lists_in_one_storage_are_not_copied(self):
        whole = torch.zeros(3, 5)
        dist.all_gather(list(whole.unbind()), torch.full((5,), float(self.rank)))
        self.assertTrue(torch.equal(whole, torch.arange(3.0)[:, None].expand(3, 5)))
        # Blocks of one storage that do not follow each other, with what is between them.
        wide = torch.full((3, 7), -1.0)
        dist.all_gather([row[1:6] for row in wide], torch.full((5,), float(self.rank)))
        self.assertTrue(torch.equal(wide[:, 1:6], whole))
        self.assertTrue(torch.equal(wide[:, [0, 6]], torch.full((3, 2), -1.0)))
        # In the wrong order.
        rows = list(whole.unbind())
        dist.all_gather(rows[::-1], torch.full((5,), float(self.rank)))
        self.assertTrue(torch.equal(whole[:, 0], torch.tensor([2.0, 1.0, 0.0])))


if __name__ == "__main__":
    unittest.main()
