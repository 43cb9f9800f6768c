#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch builds on process groups: FSDP2, DTensor, ZeRO, functional collectives, the profiler."""

import copy

import torch
import torch._dynamo  # noqa: F401  (as in ddp_test.py)
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from devices import REAL_GPUS, DeviceTest, each_device_of_torch, main
from ranks import RankTest, on_ranks
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile


def small():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def loss_of(model, values):
    return model(values).square().mean()


class Trained(DeviceTest):
    def batches(self):
        data = torch.Generator().manual_seed(5)
        for _ in range(3):
            yield torch.randn(4 * self.size, 8, generator=data)

    def alone(self):
        """Parameters after training on the whole batches, without other ranks."""
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in self.batches():
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        return [value.detach() for value in model.parameters()]

    def train(self, model, optimizer):
        for batch in self.batches():
            optimizer.zero_grad()
            loss_of(model, batch[4 * self.rank :][:4].to(self.device)).backward()
            optimizer.step()


@each_device_of_torch
class Fsdp(Trained):
    @on_ranks(2 if REAL_GPUS else 3)
    def test_fsdp(self):
        mesh = dist.init_device_mesh(self.device.type, (self.size,))
        model = small().to(self.device)
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for value, expected in zip(model.parameters(), self.alone()):
            torch.testing.assert_close(value.full_tensor().detach().cpu(), expected)


class Sharded(Trained):
    @on_ranks(2)
    def test_fsdp_with_short_floats(self):
        mesh = dist.init_device_mesh("cpu", (2,))
        for dtype in (torch.bfloat16, torch.float16):
            model = small()
            policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
            fully_shard(model, mesh=mesh, mp_policy=policy)
            self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
            for value, expected in zip(model.parameters(), self.alone()):
                torch.testing.assert_close(
                    value.full_tensor().detach(), expected, rtol=0.05, atol=0.01
                )

    @on_ranks(2)
    def test_fsdp_of_complex_parameters(self):
        class Complex(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4, 3, dtype=torch.complex64) * (1 + 2j))

            def forward(self, factor):
                return (self.weight * factor).abs().sum()

        for lends in False, True:
            model = fully_shard(Complex(), mesh=dist.init_device_mesh("cpu", (2,)))
            model.set_allocate_memory_from_process_group_for_comm(lends)
            model(self.rank + 1.0).backward()
            alone = Complex()
            alone(1.5).backward()
            torch.testing.assert_close(model.weight.grad.full_tensor(), alone.weight.grad)

    @on_ranks(2)
    def test_zero(self):
        model = DistributedDataParallel(small())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        self.train(model, optimizer)
        for value, expected in zip(model.parameters(), self.alone()):
            torch.testing.assert_close(value.detach(), expected)
        optimizer.consolidate_state_dict(0)

    @on_ranks(3)
    def test_dtensor(self):
        mesh = dist.init_device_mesh("cpu", (3,))
        whole = torch.arange(35.0).view(5, 7)  # no multiple of the ranks
        by_row = distribute_tensor(whole.clone(), mesh, [Shard(0)])
        self.assertTrue(torch.equal(by_row.full_tensor(), whole))
        by_column = by_row.redistribute(mesh, [Shard(1)])
        self.assertTrue(torch.equal(by_column.full_tensor(), whole))
        product = by_column @ by_column.redistribute(mesh, [Replicate()]).t()
        self.assertTrue(torch.equal(product.full_tensor(), whole @ whole.t()))
        self.assertIsInstance(product, DTensor)

    @on_ranks(2)
    def test_functional_collectives(self):
        group = dist.group.WORLD
        ones = torch.full((2, 2), self.rank + 1.0)
        kept = copy.copy(ones)
        total = functional.all_reduce(ones, "sum", group)
        self.assertEqual((total + 0).tolist(), [[3.0, 3.0]] * 2)
        self.assertTrue(torch.equal(ones, kept))
        gathered = functional.all_gather_tensor(ones, 1, group)
        self.assertEqual((gathered + 0)[0].tolist(), [1.0, 1.0, 2.0, 2.0])
        part = functional.reduce_scatter_tensor(ones, "avg", 0, group)
        self.assertEqual((part + 0).tolist(), [[1.5, 1.5]])
        several = functional.all_reduce_coalesced([ones, ones + 1], "max", group)
        self.assertEqual([(one + 0)[0, 0].item() for one in several], [2.0, 3.0])
        exchanged = functional.all_to_all_single(ones, None, None, group)
        self.assertEqual((exchanged + 0)[:, 0].tolist(), [1.0, 2.0])
        sent = functional.broadcast(ones, 1, group)
        self.assertEqual((sent + 0)[0, 0].item(), 2.0)

    @on_ranks(2)
    def test_compiled(self):
        def double(values):
            return functional.all_reduce(values * 2, "sum", dist.group.WORLD) + 1

        compiled = torch.compile(double, backend="aot_eager", fullgraph=True)
        self.assertEqual(compiled(torch.ones(3)).tolist(), [5.0] * 3)


class Profiles(RankTest):
    @on_ranks(2)
    def test_one_event_for_each_call(self):
        tensor, whole = torch.ones(3, 4), torch.ones(6, 4)
        other = 1 - self.rank
        for _ in range(5):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
                dist.all_reduce(tensor)
                dist.all_reduce(tensor, async_op=True).wait()
                dist.all_reduce(tensor, async_op=True).get_future().wait()
                dist.broadcast(tensor, 0)
                dist.all_gather(list(whole.split(3)), tensor)
                dist.reduce_scatter_tensor(tensor, whole)
                sent = dist.isend(tensor, other)
                dist.recv(whole[:3], other)
                sent.wait()
                dist.barrier()
            events = {}
            for event in profiled.events():
                if event.name.startswith("rondo:"):
                    events.setdefault(event.name, []).append(event)
            counts = {name: len(found) for name, found in events.items()}
            self.assertEqual(
                counts,
                {
                    "rondo:all_reduce": 3, "rondo:broadcast": 1, "rondo:all_gather": 1,
                    "rondo:_reduce_scatter_base": 1, "rondo:send": 1, "rondo:recv": 1,
                    "rondo:barrier": 1,
                },
            )  # fmt: skip
            for name in ("rondo:all_reduce", "rondo:send", "rondo:recv"):
                for event in events[name]:
                    self.assertEqual(event.input_shapes, [[3, 4]])
                    self.assertTrue(event.is_async)


if __name__ == "__main__":
    main()
