# SPDX-License-Identifier: Apache-2.0
"""Test functions that run on every rank.

    class Sums(RankTest):
        @on_ranks(3)
        def test_sum(self):
            self.assertEqual(...)  # with self.rank and self.size

The ranks are forked from the process of the test, which has loaded torch and the backend before: that
takes 0.2 s where a start of torch takes 5. Each joins the default group, does the test, and destroys
the group. What it returns comes back to `check`, if there is one.
"""

import contextlib
import faulthandler
import functools
import os
import pickle
import selectors
import signal
import sys
import tempfile
import time
import traceback
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import rondo.torch  # noqa: F401  (the ranks are forked after the extension is loaded)

LIMIT = 120  # seconds for the ranks of one test, on a busy machine
DIED = object()  # what a rank returns that was killed by a signal


class RankTest(unittest.TestCase):
    rank = size = None
    folder = None  # of this test, shared by its ranks

    @contextlib.contextmanager
    def subTest(self, **parts):
        """As unittest's, which would keep a failure in the process of the rank."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"in {parts}")
            raise


def on_ranks(size, backend="rondo", *, check=None, join=True, timeout=60):
    """Makes a test of a method that runs on each of so many ranks.

    check(test, returned): called in the process of the test, with a list of what the ranks returned.
    join: whether ranks join the default group before, and destroy it after.
    """

    def decorate(body):
        @functools.wraps(body)
        def test(self):
            with tempfile.TemporaryDirectory() as folder:
                self.folder, self.size = folder, size
                returned = _Ranks(self, body, backend if join else None, timeout).outcomes()
            if check is not None:
                check(self, returned)

        return test

    return decorate


def in_window(tensor):
    """Whether the tensor lies in memory that other ranks of this host map."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        windows = [line.split("-", 1) for line in file if "memfd:rondo" in line]
    address = tensor.data_ptr()
    return any(int(low, 16) <= address < int(rest.split()[0], 16) for low, rest in windows)


def join(test, backend="rondo", timeout=60, store="store", **options):
    dist.init_process_group(
        backend,
        init_method=f"file://{test.folder}/{store}",
        rank=test.rank,
        world_size=test.size,
        timeout=timedelta(seconds=timeout),
        **options,
    )


class _Ranks:
    """The processes of a test. A rank writes its answer to a file: pipes would stay open in processes
    that it has forked."""

    def __init__(self, test, body, backend, timeout):
        self._test = test
        self._processes = []
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(test.size):
            process = os.fork()
            if process == 0:
                _be_rank(test, rank, body, backend, timeout)
            self._processes.append(process)

    def outcomes(self):
        late = self._await_all(time.monotonic() + LIMIT)
        returned, texts = [], []
        for rank, process in enumerate(self._processes):
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            outcome, value = self._answer(rank)
            if outcome == "returned" and status == 0:
                returned.append(value)
            elif outcome == "skipped":
                self._test.skipTest(value)
            elif outcome == "nothing" and status == -signal.SIGKILL and rank not in late:
                returned.append(DIED)
            else:
                text = "took too long" if rank in late else value
                texts.append(f"rank {rank} ended with status {status}\n{text}")
        if texts:
            self._test.fail("\n".join(texts))
        return returned

    def _answer(self, rank):
        try:
            with open(_answer_of(self._test, rank), "rb") as file:
                return pickle.load(file)
        except FileNotFoundError:
            return "nothing", None

    def _await_all(self, until):
        """Kills the ranks that take too long and returns them."""
        late = set()
        with selectors.DefaultSelector() as ended:
            for rank, process in enumerate(self._processes):
                ended.register(os.pidfd_open(process), selectors.EVENT_READ, rank)
            while ended.get_map():
                events = ended.select(None if late else max(0, until - time.monotonic()))
                if not events:
                    late = {key.data for key in ended.get_map().values()}
                    for rank in late:
                        os.kill(self._processes[rank], signal.SIGKILL)
                for key, _ in events:
                    ended.unregister(key.fd)
                    os.close(key.fd)
        return late


def _answer_of(test, rank):
    return os.path.join(test.folder, f"answer-{rank}")


def _be_rank(test, rank, body, backend, timeout):
    status = 1
    try:
        faulthandler.enable()
        faulthandler.dump_traceback_later(LIMIT * 0.9, exit=False)
        torch.set_num_threads(1)
        test.rank = rank
        # torch writes a dump when a group fails: not in the home folder, and without the traces of stacks,
        # which take a second of a process.
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(test.folder, "trace_")
        os.environ["TORCH_INCLUDE_STACK_TRACE"] = "0"
        if backend is not None:
            join(test, backend, timeout)
        answer = ("returned", body(test))
        if dist.is_initialized():
            dist.destroy_process_group()
        status = 0
    except unittest.SkipTest as skip:
        answer = ("skipped", str(skip))
    except BaseException:
        answer = ("raised", traceback.format_exc())
    try:
        with open(_answer_of(test, rank), "wb") as file:
            pickle.dump(answer, file)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
