#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations on CUDA tensors, over the fake CUDA driver: torch computes nothing on them here."""

import threading
import time
from datetime import timedelta

import devices
import torch
import torch.distributed as dist
from devices import BOTH, GpuTest, main
from norm_cases import NormTest, randomize, rows_of, whole_batch
from ranks import on_ranks

from rondo.torch import SyncBatchNorm

import gpus  # after torch, whose libraries it needs

COUNT = 100_003  # elements: several segments
TYPES = torch.float32, torch.float16, torch.bfloat16


def ramp(rank, count=COUNT, dtype=torch.float32):
    return devices.ramp(rank, count, dtype)


class Gpu(GpuTest, NormTest):
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
                while not work.is_success():
                    work.is_completed()  # drives
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


class GpuTraining(GpuTest):
    """The calls, streams and tensors of DDP and FSDP2. Only _broadcast_coalesced is torch's own here:
    kernels of torch do not run on the fake."""

    def streams(self, count):
        return [gpus.make_stream(self.gpu) for _ in range(count)]

    @on_ranks(2, BOTH)
    def test_ddp_broadcasts_parameters(self):
        """torch's C++ code for DDP's constructor and for buffers: pieces of at most so many bytes."""
        group = dist.distributed_c10d._get_default_group()
        counts = 1000, 1, 0, 3000, 64
        tensors = [self.put(ramp(self.rank * 7 + i, count, dtype)) for dtype in TYPES for i, count in enumerate(counts)]
        (stream,) = self.streams(1)
        with self.on_stream(stream):
            dist._broadcast_coalesced(group, tensors, 4000, 1)
            wanted = [ramp(7 + i, count, dtype) for dtype in TYPES for i, count in enumerate(counts)]
            for tensor, value in zip(tensors, wanted):
                self.assertValues(tensor, value)

    @on_ranks(3, BOTH)
    def test_ddp_backward(self):
        """Buckets start on the streams of backward, and only their futures, with a hook's callback,
        are waited for: on another stream. The buckets are dropped meanwhile."""
        gpu = self.gpu
        group = dist.distributed_c10d._get_default_group()
        backward, other, optimizer = self.streams(3)
        for dtype in TYPES:
            for hook in False, True:
                gradients = [self.put(ramp(self.rank + i, 4000 + i, dtype)) for i in range(6)]
                results = [self.put(torch.zeros(4000 + i, dtype=dtype)) for i in range(6)]
                futures = []
                for i, gradient in enumerate(gradients):
                    with self.on_stream(other if i % 3 == 2 else backward):
                        bucket = gpus.allocate(gradient.numel(), gpu, gradient)
                        bucket.copy_(gradient)
                        future = group.allreduce([bucket]).get_future()
                        if hook:

                            def decompress(done, result=gpus.allocate(gradient.numel(), gpu, gradient)):
                                return [result.copy_(done.value()[0])]

                            future = future.then(decompress)
                        futures.append(future)
                        del bucket
                        # memory that the allocator gives away again is overwritten on this stream
                        gpus.allocate(gradient.numel(), gpu, gradient).copy_(results[i])
                with self.on_stream(optimizer):
                    for future, result in zip(futures, results):
                        result.copy_(future.wait()[0])
                    for i, result in enumerate(results):
                        self.assertValues(result, sum(ramp(rank + i, 4000 + i, dtype) for rank in range(3)))

    def gather_parameters(self, shard, streams, async_op):
        """As FSDP2's foreach_all_gather: the input is its place in the output."""
        copy_in, gathering, current = streams
        gpu, count = self.gpu, shard.numel()
        with self.on_stream(copy_in):
            gpus.come_after(gpu, current)
            output = gpus.allocate(count * self.size, gpu, shard)
            place = output.narrow(0, count * self.rank, count)
            place.copy_(shard)
        with self.on_stream(gathering):
            gpus.come_after(gpu, copy_in)
            return output, dist.all_gather_into_tensor(output, place, async_op=async_op)

    @on_ranks(2, BOTH)
    def test_fsdp2(self):
        gpu = self.gpu
        current, copy_in, gathering, scattering, reducing = self.streams(5)
        with self.on_stream(current):
            for dtype in torch.float32, torch.bfloat16, torch.uint8:
                for async_op in False, True:
                    shards = [self.put(ramp(self.rank + i, 3000, dtype)) for i in range(3)]
                    layers = [self.gather_parameters(shard, (copy_in, gathering, current), async_op) for shard in shards]
                    for i, (output, work) in enumerate(layers):
                        gpus.come_after(gpu, gathering)
                        if work is not None:
                            work.wait()
                        self.assertValues(output, torch.cat([ramp(rank + i, 3000, dtype) for rank in range(2)]))
            for dtype, op in (torch.float32, dist.ReduceOp.AVG), (torch.bfloat16, dist.ReduceOp.AVG), (torch.float16, dist.ReduceOp.SUM):
                outputs = []
                for i in range(3):
                    whole = self.put(ramp(2 * self.rank + i, 6000, dtype))
                    unsharded = gpus.allocate(6000, gpu, whole)
                    unsharded.copy_(whole)
                    with self.on_stream(scattering):
                        gpus.come_after(gpu, current)
                        output = gpus.allocate(3000, gpu, whole)
                        dist.reduce_scatter_tensor(output, unsharded, op=op)
                    with self.on_stream(reducing):  # HSDP
                        gpus.come_after(gpu, scattering)
                        dist.all_reduce(output, op=dist.ReduceOp.MAX)
                    outputs.append(output)
                    gpus.come_after(gpu, scattering)
                    del unsharded
                gpus.come_after(gpu, reducing)
                divisor = 2 if op == dist.ReduceOp.AVG else 1
                for i, output in enumerate(outputs):
                    sums = ((ramp(i, 6000, torch.float32) + ramp(2 + i, 6000, torch.float32)) / divisor).to(dtype)
                    self.assertValues(output, torch.maximum(*sums.view(2, 3000)))


if __name__ == "__main__":
    main()
