#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operation that moves data, for every type and layout, blocking, async and by future."""

import warnings

import torch
import torch.distributed as dist
from devices import DeviceTest, each_device, main
from ranks import on_ranks

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
    if layout == "several segments":
        return tensor.repeat(5000)
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


@each_device
class Moves(DeviceTest):
    def cases(self):
        for dtype in TYPES:
            yield "flat", dtype, "blocking"
        yield "several segments", torch.float32, "blocking"
        for layout in LAYOUTS:
            for way in ("blocking", "wait", "future", "poll"):
                yield layout, torch.float32, way
        for layout in LAYOUTS:
            yield layout, torch.float8_e5m2fnuz, "wait"
            yield layout, torch.complex128, "future"

    def each(self, operation):
        """operation(make, expect, empty, way): makes inputs of ranks and compares outputs."""
        for layout, dtype, way in self.cases():
            def on_host(rank, part=0):
                return shaped(values(24, dtype, 100 * rank + part), layout)

            def make(rank, part=0):
                return self.put(on_host(rank, part))

            def expect(found, rank, part=0):
                self.assertTrue(torch.equal(bytes_of(self.values(found)), bytes_of(on_host(rank, part))))

            def empty():
                return self.put(torch.zeros_like(on_host(0), memory_format=torch.preserve_format))

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
                zeros = torch.zeros(self.size, 4 * dtype.itemsize, dtype=torch.uint8).view(dtype)
                own = values(4, dtype, self.rank)
                every = torch.cat([bytes_of(values(4, dtype, rank)) for rank in range(self.size)])
                whole = self.put(zeros)
                dist.all_gather_into_tensor(whole, self.put(own))
                self.assertTrue(torch.equal(bytes_of(self.values(whole)), every))
                zeros[self.rank].view(torch.uint8).copy_(own.view(torch.uint8))
                whole = self.put(zeros)
                dist.all_gather_into_tensor(whole, whole[self.rank])  # in its place
                self.assertTrue(torch.equal(bytes_of(self.values(whole)), every))
        rows = torch.arange(9.0).view(3, 3, 1).expand(3, 3, 400)  # [from, to]
        exchanged = self.put(torch.zeros(3, 400))
        dist.all_to_all_single(exchanged, self.put(rows[self.rank].contiguous()))
        self.assertValues(exchanged, rows[:, self.rank])

    @on_ranks(3)
    def test_lists_in_one_storage_are_not_copied(self):
        own, expected = torch.full((5,), float(self.rank)), torch.arange(3.0)[:, None].expand(3, 5)
        mine, whole = self.put(own), self.put(torch.zeros(3, 5))
        dist.all_gather(list(whole.unbind()), mine)
        self.assertValues(whole, expected)
        # Blocks of one storage that do not follow each other, with what is between them.
        wide = self.put(torch.full((3, 7), -1.0))
        dist.all_gather([row[1:6] for row in wide], mine)
        self.assertValues(wide[:, 1:6], expected)
        self.assertValues(wide[:, ::6], torch.full((3, 2), -1.0))
        # In the wrong order.
        dist.all_gather(list(whole.unbind())[::-1], mine)
        self.assertValues(whole, expected.flip(0))
        gathered, there = self.put(torch.zeros(3, 5)), self.rank == 1
        dist.gather(mine, list(gathered.unbind()) if there else None, dst=1)
        self.assertValues(gathered, expected if there else torch.zeros(3, 5))
        mine = self.put(torch.zeros(5))
        dist.scatter(mine, list(gathered.unbind()) if there else None, src=1)
        self.assertValues(mine, own)


if __name__ == "__main__":
    main()
