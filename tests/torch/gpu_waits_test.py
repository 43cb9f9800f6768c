#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When streams and hosts wait for operations on CUDA tensors, and how long these keep memory. Over
the fake CUDA driver."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from devices import BOTH, GpuTest, main, ramp
from ranks import on_ranks

import gpus

COUNT = 5000  # one segment


class GpuWaits(GpuTest):
    def setUp(self):
        super().setUp()
        self.sign = torch.zeros(1)

    def receive_held(self, x, call=None):
        """Starts a broadcast into x whose last copy stays under way until all streams are let go.
        Rank 1 has only to call broadcast_when_told."""
        work = (call or (lambda: dist.broadcast(x, 1, async_op=True)))()
        gpus.synchronize(x.device.index)  # the call's place in the stream
        gpus.hold(0)
        dist.send(self.sign, 1)
        return work

    def broadcast_when_told(self, *tensors):
        dist.recv(self.sign, 0)
        for tensor in tensors:
            dist.broadcast(tensor, 1)

    @on_ranks(2, BOTH)
    def test_wait_leaves_the_copies_to_the_stream(self):
        """wait(), synchronize() and a work of several return while the last copy is under way; what
        the stream does then comes after it."""
        gpu = self.gpu
        for how in "wait", "synchronize", "several", "strides", "twice":
            if self.rank == 1:
                self.broadcast_when_told(self.put(ramp(7)), *([self.put(ramp(8))] if how == "several" else []))
                dist.barrier()
                continue
            x, more, y = (self.put(torch.zeros(COUNT)) for _ in range(3))
            if how == "strides":
                x = self.put(torch.zeros(COUNT // 50, 50).t().contiguous()).t()
                y = self.put(torch.zeros(COUNT // 50, 50))
            stream = gpus.make_stream(gpu)
            before = gpus.exchange_stream(gpu, stream)

            def several():
                with dist._coalescing_manager(device=x.device, async_ops=True) as manager:
                    manager.append(dist.broadcast(x, 1, async_op=True))
                    manager.append(dist.broadcast(more, 1, async_op=True))
                return manager

            work = self.receive_held(x, several if how == "several" else None)
            (work.synchronize if how == "synchronize" else work.wait)()
            if how == "twice":
                work.wait()
            y.copy_(x)
            if how != "several":
                self.assertFalse(work.is_completed())
            self.assertTrue(torch.equal(gpus.to_cpu(y), torch.zeros(y.shape)))
            gpus.let_go(0)
            gpus.synchronize(gpu)
            self.assertValues(y, ramp(7).view(y.shape))
            if how == "several":
                self.assertValues(more, ramp(8))
            gpus.exchange_stream(gpu, before)
            dist.barrier()
            if how != "several":
                self.assertTrue(work.is_completed() and work.is_success())

    @on_ranks(2, BOTH)
    def test_completed_when_the_results_are_there(self):
        """A poll that says so finds them in the tensor, also where they are copied into it."""
        if self.rank == 1:
            dist.broadcast(self.put(ramp(7).view(50, 100)), 1)
            return dist.barrier()
        x = self.put(torch.zeros(100, 50)).t()
        gpus.hold_pool()
        work = dist.broadcast(x, 1, async_op=True)
        while not work.is_success():
            self.assertFalse(work.is_completed())
        self.assertFalse(work.is_completed())
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            work.wait(timedelta(milliseconds=50))
        barrier = dist.barrier(async_op=True)
        while not barrier.is_success():
            self.assertFalse(barrier.is_completed())
        self.assertFalse(barrier.is_completed())
        gpus.let_pool_go()
        work.wait(timedelta(seconds=60))
        self.assertTrue(work.is_completed())
        while not barrier.is_completed():
            pass
        self.assertTrue(torch.equal(gpus.to_cpu(x), ramp(7).view(50, 100)))

    @on_ranks(2, BOTH)
    def test_blocking_call(self):
        """It leaves the copies to the stream, too, and keeps the memory."""
        if self.rank == 1:
            return self.broadcast_when_told(self.put(ramp(7)))
        x, y = gpus.allocate(COUNT, 0), self.put(torch.zeros(COUNT))
        gpus.hold(0)
        threading.Timer(0.1, gpus.let_go, [0]).start()  # for the start: the mark of the call
        dist.send(self.sign, 1)
        dist.broadcast(x, 1)
        y.copy_(x)
        del x
        gpus.synchronize(0)
        self.assertValues(y, ramp(7))

    @on_ranks(2, BOTH)
    def test_timeout(self):
        """With a timeout the host waits for the GPU, and the operation goes on after it."""
        if self.rank == 1:
            return self.broadcast_when_told(self.put(ramp(7)))
        x = self.put(torch.zeros(COUNT))
        work = self.receive_held(x)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "timed out"):
                work.wait(timedelta(milliseconds=30))
        work.wait()  # ... and the stream waits
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            work.wait(timedelta(milliseconds=30))
        gpus.let_go(0)
        work.wait(timedelta(seconds=60))
        self.assertTrue(torch.equal(gpus.to_cpu(x), ramp(7)))

    @on_ranks(2, BOTH)
    def test_barrier_waits_for_the_gpu(self):
        if self.rank == 1:
            self.broadcast_when_told(self.put(ramp(7)))
            return dist.barrier()
        x = self.put(torch.zeros(COUNT))
        work = self.receive_held(x)
        work.wait()
        threading.Timer(0.05, gpus.let_go, [0]).start()
        dist.barrier()
        self.assertTrue(torch.equal(gpus.to_cpu(x), ramp(7)))

    @on_ranks(2, BOTH)
    def test_error_after_wait(self):
        """A copy that fails after wait() is named by the work's next wait and by later calls."""
        if self.rank == 1:
            self.broadcast_when_told(self.put(ramp(7)))
            dist.send(self.sign, 0)
            with self.assertRaisesRegex(dist.DistBackendError, "rank 0 cannot go on"):
                dist.all_reduce(torch.zeros(1))
            return
        x = self.put(torch.zeros(COUNT))
        work = self.receive_held(x)
        work.wait()
        dist.recv(self.sign, 1)  # the broadcast has ended there, too
        gpus.fail_work()
        gpus.let_go(0)
        cause = "GPU 0: .*ILLEGAL_ADDRESS"
        with self.assertRaisesRegex(dist.DistBackendError, cause):
            work.wait(timedelta(seconds=60))
        with self.assertRaisesRegex(dist.DistBackendError, cause):
            dist.all_reduce(torch.zeros(1))
        with self.assertRaisesRegex(dist.DistBackendError, cause):
            work.wait()
        self.assertFalse(work.is_success())
        self.assertTrue(work.is_completed())
        with self.assertRaisesRegex(dist.DistBackendError, cause):
            dist.broadcast(x, 1)

    @on_ranks(2, BOTH)
    def test_destroyed_before_the_start(self):
        """An operation whose stream has not reached it ends with an error, and its tensors go."""
        gpu = self.gpu
        stream = gpus.make_stream(gpu)
        before = gpus.exchange_stream(gpu, stream)
        x = gpus.allocate(COUNT, gpu)
        gpus.hold(stream)
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future()
        del x
        dist.destroy_process_group()
        with self.assertRaisesRegex(dist.DistBackendError, "destroyed|left"):
            work.wait()
        with self.assertRaisesRegex(dist.DistBackendError, "destroyed|left"):
            future.wait()
        gpus.let_go(stream)
        gpus.exchange_stream(gpu, before)

    @on_ranks(2, BOTH)
    def test_destroyed_while_copies_wait(self):
        """The group ends when the last copies have, for which wait() does not wait."""
        x = self.put(torch.zeros(COUNT))
        if self.rank == 1:
            self.broadcast_when_told(self.put(ramp(7)))
        else:
            work = self.receive_held(x)
            work.wait()
            threading.Timer(0.05, gpus.let_go, [0]).start()
        dist.destroy_process_group()
        if self.rank == 0:
            self.assertTrue(work.is_completed() and work.is_success())
            self.assertTrue(torch.equal(gpus.to_cpu(x), ramp(7)))

    @on_ranks(2, BOTH)
    def test_freed_at_once(self):
        """Memory of a tensor that is dropped right after the start is not given away before the end."""
        gpu = self.gpu
        for waits in True, False:
            stream = gpus.make_stream(gpu)
            before = gpus.exchange_stream(gpu, stream)
            x = gpus.allocate(COUNT, gpu)
            place = x.data_ptr()
            x.copy_(self.put(ramp(self.rank)))
            gpus.synchronize(gpu)
            gpus.hold(stream)
            work = dist.all_reduce(x, async_op=True)
            future = work.get_future() if waits else None
            del x, work
            others = [gpus.allocate(COUNT, gpu) for _ in range(3)]
            self.assertNotIn(place, [other.data_ptr() for other in others])
            gpus.let_go(stream)
            if waits:
                self.assertValues(future.wait()[0], ramp(0) + ramp(1))
            dist.barrier()
            del future
            until = time.monotonic() + 60  # the thread that ends the work drops the tensor last
            taken = []
            while place not in [other.data_ptr() for other in taken[-1:]]:
                taken.append(gpus.allocate(COUNT, gpu))
                self.assertLess(time.monotonic(), until)
            gpus.exchange_stream(gpu, before)


if __name__ == "__main__":
    main()
