#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calls, streams and tensors of DDP and FSDP2 on CUDA tensors, over the fake CUDA driver. Only
_broadcast_coalesced is torch's own here: kernels of torch do not run on the fake."""

import contextlib

import torch
import torch.distributed as dist
from devices import BOTH, GpuTest, main, ramp
from ranks import on_ranks

import gpus

TYPES = torch.float32, torch.float16, torch.bfloat16


class GpuTraining(GpuTest):
    @contextlib.contextmanager
    def on_stream(self, stream):
        before = gpus.exchange_stream(self.gpu, stream)
        try:
            yield
        finally:
            gpus.exchange_stream(self.gpu, before)

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
