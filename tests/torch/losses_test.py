#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, disagree or leave: the others raise at once, and say which rank it was."""

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401  (as in ddp_test.py)
import torch.distributed as dist
from ranks import DIED, RankTest, join, on_ranks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from rondo.torch import SyncBatchNorm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cases import drawn_of  # noqa: E402

TIMEOUT = 60  # of the groups; nobody waits for it


class Losses(RankTest):
    def one_died(self, returned):
        self.assertIs(returned[1], DIED)

    def names_rank_1(self, function):
        begin = time.monotonic()
        with self.assertRaisesRegex(dist.DistBackendError, "rank 1"):
            for _ in range(100000):
                function()
        self.assertLess(time.monotonic() - begin, TIMEOUT / 2)

    @on_ranks(3, check=one_died, timeout=TIMEOUT)
    def test_killed_under_ddp(self):
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        steps = 0

        def step():
            nonlocal steps
            steps += 1
            if self.rank == 1 and steps == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(2, 8)).sum().backward()

        self.names_rank_1(step)

    @on_ranks(3, check=one_died, timeout=TIMEOUT)
    def test_killed_while_others_wait_in_all_ways(self):
        dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
        self.names_rank_1(works[0].wait)
        self.names_rank_1(works[1].get_future().wait)
        while not works[2].is_completed():
            pass
        self.assertFalse(works[2].is_success())
        self.names_rank_1(lambda: dist.all_reduce(torch.ones(4)))
        self.names_rank_1(lambda: dist.all_reduce(torch.ones(2, 2).to_sparse()))

    @on_ranks(3, check=one_died, timeout=TIMEOUT)
    def test_killed_with_data_loader_workers_that_live_on(self):
        loader = DataLoader(list(range(1000)), num_workers=2, multiprocessing_context="fork")
        batches = iter(loader)
        next(batches)
        dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names_rank_1(lambda: dist.all_reduce(torch.ones(4)))
        next(batches)

    @on_ranks(3, timeout=TIMEOUT)
    def test_disagreement(self):
        text = r"rank \d called .*[45] f32.* where rank \d called .*[45] f32"
        with self.assertRaisesRegex(dist.DistBackendError, text):
            dist.all_reduce(torch.ones(5 if self.rank == 1 else 4))
        # The group stays failed, and says why.
        with self.assertRaises(dist.DistBackendError):
            dist.barrier()

    @on_ranks(2, timeout=TIMEOUT)
    def test_two_threads_in_one_group(self):
        """dcp.async_save calls the default group from a thread of its own, like this."""
        dist.barrier()
        if self.rank == 0:
            texts = []

            def save():
                try:
                    dist.all_reduce(torch.ones(5))
                except dist.DistBackendError as error:
                    texts.append(str(error))

            thread = threading.Thread(target=save)
            thread.start()
            thread.join()
            self.assertRegex(texts[0], "several threads of this rank .* give each thread a group of its own")
        else:
            with self.assertRaisesRegex(dist.DistBackendError, "4 f32(?!.*several threads)"):
                dist.all_reduce(torch.ones(4))

    @on_ranks(3, timeout=TIMEOUT)
    def test_messages_of_subgroups_name_global_ranks(self):
        group = dist.new_group([1, 2])
        if self.rank != 0:
            with self.assertRaisesRegex(dist.DistBackendError, "global ranks 1, 2"):
                dist.all_reduce(torch.ones(self.rank), group=group)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)  # another group does not mind
        self.assertEqual(tensor.item(), 3.0)

    @on_ranks(2, timeout=TIMEOUT)
    def test_one_leaves_while_the_other_waits(self):
        dist.barrier()
        if self.rank == 1:
            dist.destroy_process_group()
        else:
            self.names_rank_1(lambda: dist.all_reduce(torch.ones(4)))

    @on_ranks(2, timeout=TIMEOUT)
    def test_an_exception_in_a_program_ends_the_others(self):
        dist.barrier()
        if self.rank == 1:
            process = os.fork()
            if process == 0:
                os._exit(0)
            os.waitpid(process, 0)
            rondo_torch = sys.modules["rondo.torch"]
            rondo_torch._c.shutdown_all()  # as at the exit of Python
        else:
            self.names_rank_1(lambda: dist.all_reduce(torch.ones(4)))


def await_sleep():
    """Returns when the main thread sleeps, or only polls now and then, for example a store."""
    clock = time.pthread_getcpuclockid(threading.main_thread().ident)
    while True:
        spent = time.clock_gettime(clock)
        time.sleep(0.02)
        state = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[0]
        if state == "S" and time.clock_gettime(clock) - spent < 0.001:
            return


def backward(model):
    model(torch.ones(2, 4)).sum().backward()


# Calls in which ranks 0 and 1 wait for rank 2. make(group) is called on all three before.
WAITS = {
    "all_reduce": lambda group: dist.all_reduce(torch.ones(4), group=group),
    "barrier": lambda group: dist.barrier(group),
    "recv": lambda group: dist.recv(torch.ones(4), 2, group=group),
    "wait": lambda group: dist.all_reduce(torch.ones(4), group=group, async_op=True).wait(),
    "wait of a sparse sum": lambda group: dist.all_reduce(torch.eye(4).to_sparse(), group=group, async_op=True).wait(),
    "future": lambda group: dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future().wait(),
    "monitored_barrier": lambda group: dist.monitored_barrier(group, timedelta(seconds=TIMEOUT)),
    "objects": lambda group: dist.all_gather_object([None] * 3, "object", group=group),
    "batch norm": lambda group: SyncBatchNorm(4, process_group=group)(torch.ones(2, 4)),
    "DDP": lambda group: DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group),
}
MADE_WAITS = {
    "backward of DDP": (lambda group: DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group), backward),
    "backward of batch norm": (lambda group: SyncBatchNorm(4, process_group=group)(torch.ones(2, 4, requires_grad=True)), lambda out: out.sum().backward()),
}


class Interruptions(RankTest):
    def interrupted(self, function):
        """Ctrl-C while function() waits. Returns how long it went on after it."""
        came = []

        def interrupt():
            await_sleep()
            came.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        alarm = threading.Thread(target=interrupt)
        alarm.start()
        with self.assertRaises(KeyboardInterrupt):
            function()
        went_on = time.monotonic() - came[0]
        alarm.join()
        self.assertLess(went_on, TIMEOUT / 2)
        return went_on

    @on_ranks(3, backend="gloo", timeout=TIMEOUT)
    def test_ctrl_c_in_every_wait(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        store = dist.distributed_c10d._get_default_store()
        cases = {name: (lambda group: group, wait) for name, wait in WAITS.items()} | MADE_WAITS
        for number, name in enumerate(drawn_of(list(cases), 4)):
            make, wait = cases[name]
            with self.subTest(wait=name):
                made = make(dist.new_group(backend="rondo"))
                if self.rank == 1:
                    went_on = self.interrupted(lambda: wait(made))
                    if os.environ.get("RONDO_TEST_VERBOSE"):
                        print(f"{name}: {went_on:.3f} s")
                    store.set(f"interrupted-{number}", "")
                elif self.rank == 0:
                    with self.assertRaisesRegex(RuntimeError, "rank 1|Rank 1"):
                        wait(made)
                else:
                    store.wait([f"interrupted-{number}"], timedelta(seconds=TIMEOUT))
                dist.barrier()
        self.assertEqual(Path(self.folder, f"trace_{self.rank}").exists(), self.rank != 2)  # torch's flight recorder

    # Not among the waits above: a rank that is interrupted before rank 0 comes can tell it nothing.
    @on_ranks(2, backend="gloo", timeout=TIMEOUT)
    def test_ctrl_c_in_new_group(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.rank == 1:
            self.interrupted(lambda: dist.new_group(backend="rondo"))
        dist.barrier()

    @on_ranks(2, timeout=TIMEOUT)
    def test_ctrl_c_with_a_handler_in_front(self):
        """Two handlers that call each other would end the process."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def sleep():
            future = dist.irecv(torch.zeros(1), 1 - self.rank).get_future()
            dist.barrier()
            dist.send(torch.ones(1), 1 - self.rank)
            future.wait()

        sleep()
        with tempfile.TemporaryFile() as trace:
            faulthandler.register(signal.SIGINT, file=trace, chain=True)
            sleep()
            with self.assertRaises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(TIMEOUT)
            faulthandler.unregister(signal.SIGINT)

    @on_ranks(2, timeout=TIMEOUT)
    def test_handlers_that_do_not_raise(self):
        """A program that only notes Ctrl-C goes on."""
        noted = []
        signal.signal(signal.SIGINT, lambda *_: noted.append(1))
        store = dist.distributed_c10d._get_default_store()
        for name in "wait", "future":
            if self.rank == 1:
                store.wait([name])
                dist.send(torch.ones(1), 0)
                continue

            def interrupt():
                await_sleep()
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)  # longer than Rondo waits for Python
                store.set(name, "")

            work = dist.irecv(torch.zeros(1), 1)
            alarm = threading.Thread(target=interrupt)
            alarm.start()
            work.get_future().wait() if name == "future" else work.wait()
            alarm.join()
        if self.rank == 0:
            self.assertEqual(len(noted), 2)
        dist.barrier()

    @on_ranks(2, join=False)
    def test_ctrl_c_while_joining(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.rank == 0:
            self.interrupted(lambda: join(self, timeout=TIMEOUT))


class Joining(RankTest):
    @on_ranks(2, join=False)
    def test_a_rank_that_does_not_come(self):
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "rank 1"):
                join(self, timeout=1)

    @on_ranks(2, join=False)
    def test_forked_children_of_ranks(self):
        join(self)
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        pending = dist.irecv(torch.zeros(1), 1 - self.rank, tag=4)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                for use in (
                    lambda: dist.all_reduce(torch.ones(1)),
                    lambda: dist.all_reduce(torch.ones(1), async_op=True),
                    pending.is_completed,
                    pending.wait,
                ):
                    with self.assertRaisesRegex(RuntimeError, "a forked child cannot use"):
                        use()
                group.shutdown()
                group.abort()
                del pending, group
                dist.destroy_process_group()
                if self.rank == 0:  # a group of its own
                    dist.init_process_group(
                        "rondo", store=dist.HashStore(), rank=0, world_size=1
                    )
                    dist.barrier()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(process, 0)[1], 0)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), 2.0)
        dist.send(torch.ones(1), 1 - self.rank, tag=4)
        pending.wait()


PROGRAM = """
import os, signal, sys
import torch, torch.distributed as dist
dist.init_process_group("rondo")  # no import of Rondo
rank = dist.get_rank()
work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
work.wait()
future = dist.irecv(torch.zeros(4), 1 - rank, tag=5).get_future().then(lambda f: None)
end = sys.argv[1]
if end == "kill" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if end == "raise" and rank == 1:
    raise SystemExit(3)
try:
    dist.barrier()
    dist.all_reduce(torch.ones(4))
except RuntimeError as error:
    assert end != "return" and "rank 1" in str(error), error
    if rank == 0:
        raise SystemExit(4)
# without destroy_process_group
"""


class Ends(unittest.TestCase):
    def test_programs_leave_nothing_behind(self):
        ends = {"return": [0, 0], "raise": [4, 3], "kill": [4, -signal.SIGKILL]}
        for end in drawn_of(ends):
            expected = ends[end]
            with self.subTest(end=end), tempfile.TemporaryDirectory() as folder:
                shared = set(os.listdir("/dev/shm"))
                environment = {
                    **os.environ, "TMPDIR": folder, "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(_free_port()), "WORLD_SIZE": "2", "TORCH_FR_DUMP_ON_TIMEOUT": "0",
                }  # fmt: skip
                ranks = [
                    subprocess.Popen(
                        [sys.executable, "-B", "-c", PROGRAM, end],
                        env={**environment, "RANK": str(rank)},
                        stderr=subprocess.PIPE,
                    )
                    for rank in range(2)
                ]
                texts = [process.communicate(timeout=120)[1].decode() for process in ranks]
                self.assertEqual([p.returncode for p in ranks], expected, "\n".join(texts))
                self.assertEqual(os.listdir(folder), [])
                self.assertEqual(set(os.listdir("/dev/shm")) - shared, set())


def _free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
