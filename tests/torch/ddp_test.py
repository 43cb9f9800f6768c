#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over Rondo beside the same over gloo."""

import os
import unittest
from contextlib import nullcontext

import torch
import torch._dynamo  # noqa: F401  (DDP imports it: 10 seconds, here once and not on each rank)
import torch.distributed as dist
from ranks import RankTest, in_window, on_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def small():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


class Sometimes(nn.Module):
    """One layer of two is used, which depends on the step and the rank."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
        self.step = dist.get_rank()

    def forward(self, values):
        self.step += 1
        return self.layers[self.step % 2](values)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)
        self.layer = nn.Linear(8, 4)

    def forward(self, values):
        return self.layer(self.table((values[:, :3].abs() * 10).long() % 50).mean(1))


class Complex(nn.Module):
    def __init__(self, dtype, mixed):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4, dtype=dtype) * (1 + 2j))
        self.bias = nn.Parameter(torch.ones(4)) if mixed else 0

    def forward(self, factor):
        return ((self.weight * factor).abs().float() + self.bias * factor).sum()


class Ddp(RankTest):
    def train(self, model, group, hook=None, batches=STEPS, context=None, **options):
        torch.manual_seed(1)
        ddp = DistributedDataParallel(model(), process_group=group, **options)
        if hook is not None:
            ddp.register_comm_hook(*hook(group))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        data = torch.Generator().manual_seed(10 + self.rank)
        for step in range(batches):
            optimizer.zero_grad()
            with context(ddp, step) if context else nullcontext():
                ddp(torch.randn(6, 8, generator=data)).square().mean().backward()
            optimizer.step()
        return torch.cat([value.detach().reshape(-1) for value in ddp.parameters()])

    def compare(self, model, tolerance=1e-6, **options):
        rondo = self.train(model, dist.group.WORLD, **options)
        gloo = self.train(model, dist.new_group(backend="gloo"), **options)
        self.assertLessEqual((rondo - gloo).abs().max().item(), tolerance)
        every = [torch.zeros_like(rondo) for _ in range(self.size)]
        dist.all_gather(every, rondo)
        for other in every:
            self.assertTrue(torch.equal(other.view(torch.uint8), rondo.view(torch.uint8)))

    def gradients_in_windows(self):
        ddp = DistributedDataParallel(small(), gradient_as_bucket_view=True)
        ddp(torch.ones(6, 8)).sum().backward()
        return all(in_window(parameter.grad) for parameter in ddp.parameters())

    @on_ranks(3)
    def test_plain(self):
        self.compare(small)
        self.compare(small, bucket_cap_mb=0.0001)
        self.compare(small, gradient_as_bucket_view=True)
        self.compare(small, static_graph=True)

    @on_ranks(3)
    def test_unused_parameters(self):
        self.compare(Sometimes, find_unused_parameters=True)

    @on_ranks(2)
    def test_no_sync(self):
        def context(ddp, step):
            return ddp.no_sync() if step % 2 == 0 else nullcontext()

        def accumulate(group):
            torch.manual_seed(1)
            ddp = DistributedDataParallel(small(), process_group=group)
            for step in range(STEPS):
                with context(ddp, step):
                    ddp(torch.full((6, 8), step + self.rank + 1.0)).sum().backward()
            return torch.cat([value.grad.reshape(-1) for value in ddp.parameters()])

        rondo = accumulate(dist.group.WORLD)
        self.assertTrue(torch.allclose(rondo, accumulate(dist.new_group(backend="gloo"))))

    @on_ranks(3)
    def test_join(self):
        def train(group):
            torch.manual_seed(1)
            ddp = DistributedDataParallel(nn.Linear(8, 4), process_group=group)
            with Join([ddp]):
                for step in range(self.rank + 2):
                    ddp.zero_grad()
                    ddp(torch.full((6, 8), step + 1.0)).sum().backward()
                    with torch.no_grad():
                        for value in ddp.parameters():
                            value -= 0.01 * value.grad
            return torch.cat([value.detach().reshape(-1) for value in ddp.parameters()])

        rondo, gloo = train(dist.group.WORLD), train(dist.new_group(backend="gloo"))
        torch.testing.assert_close(rondo, gloo)

    @on_ranks(3)
    def test_sparse_gradients(self):
        self.compare(Words)
        self.compare(Words, static_graph=True)

    @on_ranks(2)
    def test_hooks(self):
        self.compare(small, hook=lambda group: (group, default_hooks.allreduce_hook))
        self.compare(small, 1e-2, hook=lambda group: (group, default_hooks.fp16_compress_hook))
        self.compare(small, 2e-2, hook=lambda group: (group, default_hooks.bf16_compress_hook))

    # Its callbacks start operations and wait for their futures. There is one bucket: with more, ranks
    # may start the operations of callbacks and of buckets in different orders, on gloo, too.
    @on_ranks(2)
    def test_power_sgd(self):
        def hook(group):
            state = powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
            )
            return state, powerSGD_hook.powerSGD_hook

        self.compare(small, 1e-5, hook=hook)

    # As batched_powerSGD_hook, which then fails in torch 2.15 by itself.
    @on_ranks(2)
    def test_a_hook_that_resizes_its_bucket(self):
        def hook(group, bucket):
            values = bucket.buffer()
            count = values.numel()
            values.resize_(1 << 20)
            values[count:] = 0
            work = dist.all_reduce(values, group=group, async_op=True)
            return work.get_future().then(lambda future: future.value()[0].resize_(count) / self.size)

        self.compare(small, hook=lambda group: (group, hook))

    @on_ranks(2)
    def test_complex_parameters(self):
        for dtype in torch.complex32, torch.complex64, torch.complex128:
            for options in {}, {"gradient_as_bucket_view": True}, {"static_graph": True}:
                for mixed in False, True:
                    with self.subTest(dtype=dtype, mixed=mixed, **options):
                        ddp = DistributedDataParallel(Complex(dtype, mixed), **options)
                        for step in range(2):
                            ddp.zero_grad()
                            ddp(step + self.rank + 1.0).backward()
                            alone = Complex(dtype, mixed)
                            alone(step + 1.5).backward()
                            for one, expected in zip(ddp.parameters(), alone.parameters()):
                                torch.testing.assert_close(one.grad.cfloat(), expected.grad.cfloat(), rtol=2e-3, atol=0)

    @on_ranks(2)
    def test_hooks_of_users(self):
        def hook(group, bucket):
            def then(future):
                tensor = future.value()[0]
                # Waits for another operation, from a callback.
                dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future().wait()
                return tensor / self.size

            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future().then(then)

        self.compare(small, hook=lambda group: (group, hook))

    @on_ranks(2)
    def test_an_error_in_a_hook_comes_out_of_backward(self):
        ddp = DistributedDataParallel(nn.Linear(8, 4))

        def hook(_, bucket):
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: 1 // 0)

        ddp.register_comm_hook(None, hook)
        with self.assertRaisesRegex(RuntimeError, "ZeroDivisionError"):
            ddp(torch.ones(6, 8)).sum().backward()

    @on_ranks(2)
    def test_buckets_in_memory_of_the_backend(self):
        self.assertTrue(self.gradients_in_windows())
        self.compare(small)

    @on_ranks(2, join=False)
    def test_buckets_in_ordinary_memory(self):
        from ranks import join

        os.environ["DDP_DISABLE_COMM_MEM"] = "1"
        join(self)
        self.assertFalse(self.gradients_in_windows())
        self.compare(small)

    # A group of gloo compares calls before each operation.
    @on_ranks(2, join=False)
    def test_debug_mode(self):
        from ranks import join

        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        join(self)
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        dist.barrier()
        self.assertEqual(tensor.tolist(), [2.0] * 4)
        self.train(small, dist.group.WORLD)
        with self.assertRaisesRegex(RuntimeError, "mismatch"):
            dist.all_reduce(torch.ones(4 + self.rank))


if __name__ == "__main__":
    unittest.main()
