#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Works and futures: who may wait for them, when, and how long they live."""

import gc
import os
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import RankTest, on_ranks

from rondo.torch._c import shutdown_all

COUNT = 1 << 16


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def run_all(*functions):
    """Runs the functions on threads of their own and raises what they raise."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        if thread.is_alive():
            raise TimeoutError("a thread does not end")
    if errors:
        raise errors[0]


class Works(RankTest):
    @on_ranks(2)
    def test_many_threads_use_one_work(self):
        for _ in range(100):
            tensor = torch.ones(64, 64).t()
            work = dist.all_reduce(tensor, async_op=True)

            def wait(work=work, tensor=tensor):
                work.wait()
                self.assertEqual(tensor[3, 5].item(), 2.0)

            def poll(work=work, tensor=tensor):
                while not work.is_completed():
                    pass
                self.assertEqual(tensor[5, 3].item(), 2.0)

            def sleep(work=work, tensor=tensor):
                work.get_future().wait()
                self.assertEqual(tensor[0, 0].item(), 2.0)
                self.assertEqual(work.get_future().value()[0].data_ptr(), tensor.data_ptr())

            def then(work=work):
                seen = work.get_future().then(lambda f: f.value()[0][1, 1].item())
                self.assertEqual(seen.wait(), 2.0)

            run_all(wait, poll, sleep, then, wait, poll)

    @on_ranks(2)
    def test_a_future_is_done_when_wait_returns(self):
        for _ in range(200):
            work = dist.all_reduce(torch.ones(8), async_op=True)
            future = work.get_future()
            work.wait()
            self.assertTrue(future.done())
            self.assertTrue(work.is_completed())

    # Python's lock may be held by a thread that polls while another finishes the work and frees
    # tensors that Python knows.
    @on_ranks(2)
    def test_polling_while_another_thread_finishes(self):
        for _ in range(300):
            work = dist.all_reduce(torch.ones(33, 7).t(), async_op=True)
            future = work.get_future()
            while not work.is_completed():
                pass
            self.assertEqual(future.wait()[0][0, 0].item(), 2.0)

    @on_ranks(2)
    def test_dropped_works_end(self):
        tensors = [torch.ones(COUNT) for _ in range(20)]
        for tensor in tensors:
            dist.all_reduce(tensor, async_op=True)
        views = [torch.ones(64, 64).t() for _ in range(20)]
        futures = [dist.all_reduce(view, async_op=True).get_future() for view in views]
        gc.collect()
        torch.futures.wait_all(futures)
        self.assertEqual({t.sum().item() for t in tensors}, {2.0 * COUNT})
        self.assertEqual({v.sum().item() for v in views}, {2.0 * 4096})

    @on_ranks(2)
    def test_dropped_tensors_live_until_the_end(self):
        other = 1 - self.rank
        for _ in range(20):
            dist.isend(torch.full((COUNT,), 3.0), other)
            dist.all_reduce(torch.ones(COUNT), async_op=True)
            torch.full((COUNT,), -1.0)  # would take the memory
            gc.collect()
        for _ in range(20):
            got = torch.zeros(COUNT)
            dist.recv(got, other)
            self.assertEqual(got.unique().tolist(), [3.0])
        dist.barrier()  # a rank that leaves takes with it what has not been sent

    @on_ranks(2)
    def test_a_wait_that_expires_leaves_the_operation(self):
        tensor = torch.ones(10)
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            self.assertFalse(work.is_completed())
            for _ in range(3):
                with self.assertRaisesRegex(RuntimeError, "timed out"):
                    work.wait(timedelta(milliseconds=20))
            self.assertFalse(work.is_completed())
            dist.send(torch.ones(1), 1, tag=5)
            work.wait()
        else:
            dist.recv(torch.ones(1), 0, tag=5)
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
        self.assertTrue(work.is_success())
        self.assertEqual(tensor.tolist(), [2.0] * 10)

    # Waits that expire while the operation ends: somebody must finish it.
    @on_ranks(2)
    def test_short_waits(self):
        for number in range(200):
            work = dist.all_reduce(torch.ones(COUNT if number % 8 == 0 else 64), async_op=True)
            done = work.get_future().then(lambda future: True)
            for _ in range(number % 4):
                try:
                    work.wait(timedelta(milliseconds=1))
                except RuntimeError as error:
                    self.assertIn("timed out", str(error))
            self.assertTrue(done.wait())

    @on_ranks(2)
    def test_starts_do_not_block(self):
        tensor, message = torch.ones(COUNT), torch.zeros(1)
        if self.rank == 0:
            # The second uses memory of the first.
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
            works.append(dist.barrier(async_op=True))
            dist.send(message, 1)
        else:
            dist.recv(message, 0)
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
            works.append(dist.barrier(async_op=True))
        for work in works:
            work.wait()
        self.assertEqual(tensor.unique().tolist(), [4.0])

    # Hooks of DDP do so: more callbacks than threads of one, each blocks on an operation of its own.
    @on_ranks(2)
    def test_callbacks_start_operations_and_wait(self):
        results = []

        def again(future):
            tensor = future.value()[0]
            next_one = dist.all_reduce(tensor, async_op=True).get_future().wait()
            return next_one[0].sum().item()

        for number in range(3):
            work = dist.all_reduce(torch.ones(4), async_op=True)
            results.append(work.get_future().then(again))
            results[-1].wait()
        nested = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        nested = nested.then(lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future())
        self.assertEqual(nested.wait().wait()[0].tolist(), [4.0] * 4)
        self.assertEqual([r.value() for r in results], [16.0] * 3)

    @on_ranks(2)
    def test_errors_reach_the_future(self):
        backwards = torch.ones(1).expand(4)  # cannot be written
        work = dist.all_reduce(backwards, async_op=True)
        with self.assertRaisesRegex(RuntimeError, "single memory location"):
            work.get_future().wait()
        with self.assertRaisesRegex(RuntimeError, "single memory location"):
            work.wait()
        self.assertTrue(work.is_completed())
        self.assertFalse(work.is_success())
        self.assertIsNotNone(work.exception())
        # One of a callback is the callback's.
        work = dist.all_reduce(torch.ones(4), async_op=True)
        failed = work.get_future().then(lambda future: 1 // 0)
        with self.assertRaisesRegex(RuntimeError, "ZeroDivisionError"):
            failed.wait()
        work.wait()

    @on_ranks(2)
    def test_works_outlive_the_group(self):
        ended = dist.all_reduce(torch.ones(4), async_op=True)
        ended.wait()
        tensor = torch.zeros(4)
        never = dist.irecv(tensor, 1 - self.rank, tag=9)
        future = never.get_future()
        dist.destroy_process_group()
        self.assertTrue(ended.is_success())
        self.assertEqual(ended.result()[0].tolist(), [2.0] * 4)
        self.assertEqual(ended.get_future().wait()[0].tolist(), [2.0] * 4)
        with self.assertRaisesRegex(RuntimeError, "rondo"):
            never.wait()
        with self.assertRaisesRegex(RuntimeError, "rondo"):
            future.wait()
        self.assertTrue(never.is_completed())

    @on_ranks(2)
    def test_sequence_numbers(self):
        before = backend()._get_sequence_number_for_group()
        dist.all_reduce(torch.ones(1))
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        self.assertEqual(backend()._get_sequence_number_for_group(), before + 2)

    # Each thread has a group: their operations run at once.
    @on_ranks(2)
    def test_threads_with_groups_of_their_own(self):
        groups = [dist.new_group() for _ in range(4)]

        def use(group):
            for number in range(50):
                tensor = torch.full((100,), float(number))
                dist.all_reduce(tensor, group=group)
                self.assertEqual(tensor[7].item(), 2.0 * number)

        run_all(*[lambda g=group: use(g) for group in groups])


class Ends(RankTest):
    @on_ranks(2)
    def test_shutdown_while_another_thread_waits(self):
        raised = []

        def wait(work):
            try:
                work.wait()
            except RuntimeError as error:
                raised.append(str(error))

        def sleep(future):
            try:
                future.wait()
            except RuntimeError as error:
                raised.append(str(error))

        tensors = [torch.zeros(3) for _ in range(2)]
        works = [dist.irecv(tensor, 1 - self.rank, tag=3) for tensor in tensors]
        threads = [threading.Thread(target=wait, args=(work,)) for work in works]
        threads.append(threading.Thread(target=sleep, args=(works[0].get_future(),)))
        for thread in threads:
            thread.start()
        dist.barrier()
        begin = time.monotonic()
        dist.destroy_process_group()
        for thread in threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(len(raised), 3)
        self.assertTrue(all("rondo" in text for text in raised))

    # Threads that come to wait, poll and start while the group ends.
    @on_ranks(2, join=False)
    def test_shutdown_in_a_race(self):
        from ranks import join

        for number in range(8):
            join(self, store=f"store{number}")
            group = backend()
            end = threading.Event()

            def wait(group=group, end=end):
                while not end.is_set():
                    try:
                        work = group.recv([torch.zeros(3)], 1 - self.rank, 11)
                        work.wait(timedelta(milliseconds=3))
                    except RuntimeError:
                        pass

            def poll(group=group, end=end):
                while not end.is_set():
                    try:
                        work = group.recv([torch.zeros(3)], 1 - self.rank, 12)
                        work.get_future().then(lambda future: None)
                        work.is_completed()
                        work.wait(timedelta(milliseconds=1))
                    except RuntimeError:
                        pass

            def finish(end=end):
                time.sleep(0.002 * (number + 1))
                dist.destroy_process_group()
                end.set()

            del group
            run_all(wait, poll, finish)

    @on_ranks(2)
    def test_shutdown_twice_and_use_after_it(self):
        group = backend()
        held = dist.group.WORLD
        dist.barrier()
        group.shutdown()
        group.shutdown()
        group.abort()
        for use in (
            lambda: group.allreduce([torch.ones(1)]),
            lambda: group.barrier(),
            lambda: group.send([torch.ones(1)], 0, 0),
            lambda: group.allocate_tensor(4, dtype=torch.float32, device=torch.device("cpu")),
            lambda: dist.all_reduce(torch.ones(1)),
            lambda: dist.all_reduce(torch.ones(2, 2).to_sparse(), async_op=True).wait(),
        ):
            with self.assertRaisesRegex(RuntimeError, "has been destroyed"):
                use()
        del held

    @on_ranks(2)
    def test_callbacks_run_while_the_group_ends(self):
        seen = []
        works = [dist.irecv(torch.zeros(1), 1 - self.rank, tag=3) for _ in range(5)]
        for work in works:
            work.get_future().add_done_callback(lambda future: seen.append(1))
        dist.barrier()
        dist.destroy_process_group()
        self.assertEqual(len(seen), 5)

    # Its thread cannot join itself: it ends after the callback and is joined by a later group's end.
    @on_ranks(2)
    def test_a_callback_ends_its_own_group(self):
        # It waits when it gets its future: so it begins the thread for Ctrl-C.
        pending = dist.irecv(torch.zeros(1), 1 - self.rank).get_future()
        dist.barrier()
        dist.send(torch.ones(1), 1 - self.rank)
        pending.wait()
        before = len(os.listdir("/proc/self/task"))
        for _ in range(5):
            group, ended = dist.new_group(), threading.Event()

            def end(future, group=group, ended=ended):
                dist.destroy_process_group(group)
                ended.set()

            if self.rank == 0:
                work = dist.irecv(torch.zeros(1), 1, group=group)
                work.get_future().add_done_callback(end)
            dist.barrier()
            if self.rank == 1:
                dist.send(torch.ones(1), 0, group=group)
                end(None)
            self.assertTrue(ended.wait(30))
        until = time.monotonic() + 30
        while len(os.listdir("/proc/self/task")) > before and time.monotonic() < until:
            time.sleep(0.01)
        self.assertLessEqual(len(os.listdir("/proc/self/task")), before)
        pid = os.fork()
        if pid == 0:  # the child has no thread of its parent to join
            shutdown_all()
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    @on_ranks(2)
    def test_abort(self):
        work = dist.irecv(torch.zeros(1), 1 - self.rank)
        # The store and not a barrier: an abort would end a barrier that rank 1 has not left yet.
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 0:
            store.wait(["receive posted"])
            backend().abort()
        else:
            store.set("receive posted", "")
        with self.assertRaisesRegex(RuntimeError, "the process group was aborted"):
            work.wait()
        dist.distributed_c10d._abort_process_group()


if __name__ == "__main__":
    unittest.main()
