#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations on CUDA tensors, over the fake CUDA driver: torch computes nothing on them here."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import gpu_ranks
from gpu_ranks import BOTH, GpuTest
from norm_cases import NormTest, randomize, rows_of, whole_batch
from ranks import on_ranks

from rondo.torch import SyncBatchNorm

import gpus  # after torch, whose libraries it needs

COUNT = 100_003  # elements: several segments


def ramp(rank, count=COUNT, dtype=torch.float32):
    return gpu_ranks.ramp(rank, count, dtype)


class Gpu(GpuTest, NormTest):
    @on_ranks(3, BOTH)
    def test_reductions(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
            x = self.put(ramp(self.rank, dtype=dtype))
            dist.all_reduce(x)
            total = sum(ramp(rank, dtype=dtype) for rank in range(3))
            self.assertValues(x, total)
            y = self.put(ramp(self.rank, dtype=dtype))
            dist.all_reduce(y, op=dist.ReduceOp.MAX)
            self.assertValues(y, torch.stack([ramp(rank, dtype=dtype) for rank in range(3)]).amax(0))
        y = self.put(ramp(self.rank))
        dist.reduce(y, 1, op=dist.ReduceOp.AVG)
        if self.rank == 1:
            expected = sum(ramp(rank) for rank in range(3)) / 3
            torch.testing.assert_close(self.values(y), expected)
        rows = self.put(torch.stack([ramp(self.rank + row, 500) for row in range(3)]))
        part = self.put(torch.zeros(500))
        dist.reduce_scatter_tensor(part, rows)
        self.assertValues(part, sum(ramp(rank + self.rank, 500) for rank in range(3)))

    @on_ranks(3, BOTH)
    def test_moves(self):
        x = self.put(ramp(self.rank))
        dist.broadcast(x, 2)
        self.assertValues(x, ramp(2))
        mine, all_of_them = self.put(ramp(self.rank, 400)), self.put(torch.zeros(3, 400))
        dist.all_gather_into_tensor(all_of_them, mine)
        self.assertValues(all_of_them, torch.stack([ramp(rank, 400) for rank in range(3)]))
        gathered = self.put(torch.zeros(3, 400))
        dist.gather(mine, list(gathered) if self.rank == 1 else None, dst=1)
        if self.rank == 1:
            self.assertValues(gathered, torch.stack([ramp(rank, 400) for rank in range(3)]))
        mine = self.put(torch.zeros(400))
        dist.scatter(mine, list(gathered) if self.rank == 1 else None, src=1)
        self.assertValues(mine, ramp(self.rank, 400))
        dist.all_to_all_single(all_of_them, self.put(torch.stack([ramp(10 * self.rank + to, 400) for to in range(3)])))
        self.assertValues(all_of_them, torch.stack([ramp(10 * rank + self.rank, 400) for rank in range(3)]))

    @on_ranks(2)
    def test_one_backend_for_both(self):
        group = dist.distributed_c10d._get_default_group()
        self.assertIs(group._get_backend(torch.device("cpu")), group._get_backend(torch.device("cuda")))

    @on_ranks(2, BOTH)
    def test_host_and_gpu_in_turns(self):
        x, y = self.put(ramp(self.rank)), ramp(self.rank)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (x, y, x, y)]
        for work in works:
            work.wait()
        self.assertTrue(torch.equal(y, 2 * (ramp(0) + ramp(1))))
        self.assertValues(x, y)
        dist.barrier()

    @on_ranks(2, BOTH)
    def test_messages(self):
        if self.rank == 0:
            dist.send(self.put(ramp(5)), 1)
            x = self.put(torch.zeros(COUNT))
            self.assertEqual(dist.recv(x), 1)
            self.assertValues(x, ramp(6))
        else:
            x = torch.zeros(COUNT)  # the other end may be in host memory
            dist.recv(x, 0)
            self.assertTrue(torch.equal(x, ramp(5)))
            dist.send(self.put(ramp(6)), 0)

    @on_ranks(2, BOTH)
    def test_starts_behind_the_current_stream(self):
        """What the stream has to do before the call comes first, and the call does not wait for it."""
        gpu = self.gpu
        stream = gpus.make_stream(gpu)
        x, more = self.put(torch.zeros(COUNT)), self.put(ramp(self.rank))
        for blocking in False, True:
            gpus.hold(stream)
            before = gpus.exchange_stream(gpu, stream)
            x.copy_(more)
            if blocking:
                threading.Timer(0.1, gpus.let_go, [stream]).start()
                dist.all_reduce(x)
            else:
                work = dist.all_reduce(x, async_op=True)
                self.assertFalse(work.is_completed())
                gpus.let_go(stream)
                work.wait()
            gpus.exchange_stream(gpu, before)
            self.assertValues(x, ramp(0) + ramp(1))

    @on_ranks(2, BOTH)
    def test_strides(self):
        """Results go back into tensors of any strides, on the stream of the call."""
        gpu = self.gpu
        wanted = ramp(0, 6000).view(60, 100) + ramp(1, 6000).view(60, 100)
        for blocking in False, True:
            x = self.put(ramp(self.rank, 6000).view(60, 100).t().contiguous()).t()
            work = dist.all_reduce(x, async_op=not blocking)
            if work is not None:
                work.wait()
            y = self.put(torch.zeros(60, 100)).copy_(x)  # behind the copy into x
            gpus.synchronize(gpu)
            self.assertValues(y, wanted)
        outputs = [self.put(torch.zeros(70, 50).t()) for _ in range(2)]
        dist.all_gather(outputs, self.put(ramp(self.rank, 3500).view(50, 70)))
        gpus.synchronize(gpu)
        for rank, output in enumerate(outputs):
            self.assertValues(output, ramp(rank, 3500).view(50, 70))

    @on_ranks(2, BOTH)
    def test_other_streams_wait(self):
        """Results go back into strides on another stream, and whoever waits comes after that."""
        gpu = self.gpu
        stream, other = gpus.make_stream(gpu), gpus.make_stream(gpu)
        sign, wanted = torch.zeros(1), ramp(0, 6000).view(60, 100) + ramp(1, 6000).view(60, 100)
        barriers = "barrier", "barrier after the end", "blocking barrier after the end"
        for how in "wait", "future", "future before", "several", "future of several", *barriers:
            x = self.put(ramp(self.rank, 6000).view(60, 100).t().contiguous()).t()
            y = self.put(torch.zeros(60, 100))
            if self.rank == 1:
                dist.recv(sign, 0)
                dist.all_reduce(x)
                if how in barriers:
                    dist.barrier()
                continue
            gpus.exchange_stream(gpu, stream)
            group = dist.distributed_c10d._get_default_group()
            if "several" in how:
                group._start_coalescing(x.device)
            work = dist.all_reduce(x, async_op=True)
            if "several" in how:
                dist.isend(self.put(torch.zeros(1)), self.rank)
                dist.irecv(self.put(torch.zeros(1)), self.rank)
                work = group._end_coalescing(x.device)
            future = work.get_future() if how == "future before" else None
            gpus.synchronize(gpu)  # the call's place in the stream
            gpus.hold(stream)  # what comes there after the call concerns nobody
            gpus.hold_pool()  # where results go back into strides
            dist.send(sign, 1)
            if "after the end" in how:
                work.wait(timedelta(seconds=60))  # on the host, and on a stream that does not count
            gpus.exchange_stream(gpu, other)
            if how in barriers:
                del work  # nobody needs it for the barrier
                work = dist.barrier(async_op="blocking" not in how)
            if work is not None:
                (future or (work.get_future() if "future" in how else work)).wait()
            y.copy_(x)
            time.sleep(0.02)
            self.assertFalse(torch.equal(gpus.to_cpu(x), wanted))
            threading.Timer(0.05, gpus.let_pool_go).start()
            gpus.synchronize(gpu)
            self.assertTrue(torch.equal(self.values(y), wanted), how)
            gpus.let_go(stream)

    @on_ranks(2, BOTH)
    def test_futures(self):
        x = self.put(ramp(self.rank))
        future = dist.all_reduce(x, async_op=True).get_future()
        self.assertValues(future.wait()[0], ramp(0) + ramp(1))
        then = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0])
        self.assertValues(then.wait(), 2 * (ramp(0) + ramp(1)))

    @on_ranks(2, BOTH)
    def test_coalesced(self):
        tensors = [self.put(ramp(self.rank + i, 1000 + i)) for i in range(5)]
        with dist._coalescing_manager(device=tensors[0].device, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for i, tensor in enumerate(tensors):
            self.assertValues(tensor, ramp(i, 1000 + i) + ramp(i + 1, 1000 + i))

    @on_ranks(2, BOTH)
    def test_allocated_tensors(self):
        """Memory of the backend on a GPU, which outlives its group."""
        device = torch.device("cuda", self.gpu)
        backend = dist.distributed_c10d._get_default_group()._get_backend(device)
        self.assertTrue(backend.supports_tensor_alloc(device))
        x = backend.allocate_tensor(1000, dtype=torch.float32, device=device)
        self.assertEqual(x.device, device)
        self.assertValues(x, torch.zeros(1000))
        x.copy_(self.put(ramp(self.rank, 1000)))
        dist.all_reduce(x)
        dist.destroy_process_group()
        self.assertValues(x, ramp(0, 1000) + ramp(1, 1000))

    @on_ranks(2, BOTH)
    def test_refusals(self):
        x = self.put(ramp(0, 4))
        with self.assertRaisesRegex(ValueError, "one tensor of a call is on cuda:. and another on cpu"):
            dist.all_gather_into_tensor(torch.zeros(8), x)
        with self.assertRaisesRegex(ValueError, "on different devices"):
            dist.all_gather([torch.zeros(4), self.put(torch.zeros(4))], torch.zeros(4))
        with self.assertRaisesRegex(ValueError, "is on meta: Rondo moves tensors in host memory and on CUDA"):
            dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).allreduce([torch.zeros(3, device="meta")])
        dist.all_reduce(x)
        self.assertValues(x, 2 * ramp(0, 4))

    @on_ranks(2, BOTH)
    def test_ranks_that_differ(self):
        tensor = ramp(0, 50_000)
        with self.assertRaisesRegex(dist.DistBackendError, "rank 1 called .* where rank 0 called"):
            dist.all_reduce(self.put(tensor) if self.rank else tensor)

    @on_ranks(2, BOTH)
    def test_batch_norm(self):
        """Two steps, with uneven batches, against one process on the CPU with the whole batch."""
        for dtype in torch.float32, torch.bfloat16:
            self.case = dtype
            layer, reference = SyncBatchNorm(4, name=f"bn {dtype}"), torch.nn.BatchNorm2d(4).double()
            randomize(reference)
            layer.load_state_dict(reference.float().state_dict())
            reference.double()
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
                if tensor.is_floating_point():
                    holder = layer._parameters if name in layer._parameters else layer._buffers
                    moved = self.put(tensor.detach())
                    holder[name] = torch.nn.Parameter(moved) if holder is layer._parameters else moved
            gpu = self.gpu
            stream = gpus.make_stream(gpu)
            before = gpus.exchange_stream(gpu, stream)
            norm = layer._rondo.norm(dist.distributed_c10d._get_default_group(), layer, layer.weight.device)
            for step in range(2):
                x, dy = whole_batch((5, 4, 3, 3), dtype, step)
                wanted = reference(x.double().requires_grad_())
                given, mine = self.put(rows_of(self, x, [3, 2])), self.put(torch.zeros_like(rows_of(self, x, [3, 2])))
                gpus.hold(stream)
                mine.copy_(given)
                threading.Timer(0.05, gpus.let_go, [stream]).start()
                settings = layer.running_mean, layer.running_var, 0.1, step, layer.eps
                y, kept, norm_pass, token = norm.forward(mine, layer.weight, layer.bias, *settings, True)
                self.assertEqual(y.device, mine.device)
                gpus.synchronize(gpu)
                self.assertNear(gpus.to_cpu(y), rows_of(self, wanted, [3, 2]), dtype, "y")
                for name in "running_mean", "running_var":
                    self.assertNear(gpus.to_cpu(getattr(layer, name)), getattr(reference, name), torch.float32, name)
                inputs = x.double().requires_grad_()
                gradients = torch.autograd.grad(torch.nn.functional.batch_norm(
                    inputs, None, None, reference.weight, reference.bias, True, 0.1, reference.eps), inputs, dy.double())
                dx, dweight, dbias = norm_pass.backward(
                    token, kept, self.put(rows_of(self, dy, [3, 2])), torch.float32, torch.float32, True)
                gpus.synchronize(gpu)
                self.assertNear(gpus.to_cpu(dx), rows_of(self, gradients[0], [3, 2]), dtype, "dx")
                self.assertNear(gpus.to_cpu(dbias), rows_of(self, dy, [3, 2]).double().sum((0, 2, 3)), dtype, "dbias")
                self.assertEqual(dweight.device, mine.device)
            gpus.exchange_stream(gpu, before)


if __name__ == "__main__":
    gpu_ranks.main()
