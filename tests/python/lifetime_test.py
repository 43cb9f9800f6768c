# SPDX-License-Identifier: Apache-2.0
"""Buffers, handles, threads, signals, forks, and the end of the interpreter."""

import asyncio
import contextlib
import gc
import os
import queue
import signal
import socket
import sys
import threading
import time
import weakref

import numpy as np
import ranks
from errors_test import raises

import rondo


class Watched(np.ndarray):
    """An array that a weak reference can watch."""


def watched(count, value):
    return np.full(count, value, np.float32).view(Watched)


def let_go(c, *references):
    """Waits until these objects are gone. Each operation lets go of what has ended."""
    end = time.monotonic() + ranks.LIMIT_S / 2
    while any(reference() is not None for reference in references):
        assert time.monotonic() < end, "a buffer was kept although its operation has ended"
        c.batch([])


def dropped_work(c):
    """A dropped Work goes on, and keeps its buffers until it ends."""
    if c.rank == 0:
        data = [watched(1000, 5), watched(1 << 20, 7)]
        gone = [weakref.ref(each) for each in data]
        c.send(data[0], 1, tag=1, wait=False)
        work = c.send(data[1], 1, tag=2, wait=False)  # so much waits for its receive
        assert not work.wait(0.05) and not work.done and work.error is None
        del data, work
        gc.collect()
        assert gone[1]() is not None, "the buffer was freed while the operation ran"
        c.barrier()
        let_go(c, *gone)
    else:
        c.barrier()
        for tag, count, value in [(2, 1 << 20, 7), (1, 1000, 5)]:
            out = np.zeros(count, np.float32)
            c.receive(out, 0, tag)
            assert (out == value).all()
    c.barrier()


def awaited_work(c):
    """`await work` lets other coroutines run meanwhile, and raises what wait() does."""

    async def message():
        out = bytearray(5)
        receipt = c.receive(out, 0, wait=False)
        assert not receipt.done
        # Rank 0 sends when this has gone on.
        await asyncio.gather(receipt, asyncio.to_thread(c.send, b"go", 0, 1))
        assert out == b"hello"
        assert await receipt is True

    if c.rank == 0:
        c.receive(bytearray(2), 1, 1)
        c.send(b"hello", 1)
    else:
        asyncio.run(message())
    c.barrier()

    async def failure():
        work = c.all_reduce(np.zeros(10 + c.rank), wait=False)
        try:
            await work
        except rondo.MismatchError as error:
            assert str(error) == str(work.error)
            return
        raise AssertionError("nothing was raised")

    if c.rank == 0:

        async def cancelled():
            work = c.receive(bytearray(1), 1, 9, wait=False)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.05)

        asyncio.run(cancelled())  # its end waits for the thread: the message comes later
        c.send(b"", 1, 9)
    else:
        c.receive(bytearray(0), 0, 9)
        c.send(b"x", 0, 9)
    c.barrier()
    asyncio.run(failure())


def kept_bytearray(c):
    """A bytearray of a running operation does not move."""
    data = bytearray(1 << 20)
    work = c.all_reduce(data, wait=False)
    try:
        data += b"more"
        assert work.done, "the buffer moved while the operation ran"
    except BufferError:
        pass
    work.wait()
    data += b"more"


def closed_work(c):
    """Handles outlive their communicator."""
    work = c.receive(bytearray(4), (c.rank + 1) % 2, wait=False)
    other = c.receive(bytearray(4), (c.rank + 1) % 2, wait=False)
    del other
    assert not work.done
    c.close()
    raises(rondo.Error, "", work.wait)
    assert work.done and isinstance(work.error, rondo.Error)


def threads(c):
    """Several threads wait for one operation, and others start theirs."""
    work = c.receive(bytearray(8), 1 - c.rank, wait=False)
    waited, added = queue.SimpleQueue(), queue.SimpleQueue()
    part = c.split(0)

    def adds(communicator, **call):
        x = np.ones(100)
        for _ in range(200):
            communicator.all_reduce(x, op="max", **call)
        added.put((x == 1).all())

    waiters = [threading.Thread(target=lambda: waited.put(work.wait())) for _ in range(4)]
    # The two on one lane call the same, so their order does not matter.
    adders = [threading.Thread(target=adds, args=(communicator,), kwargs=call)
              for communicator, call in [(c, {}), (c, {}), (c, {"urgent": True}), (part, {})]]
    for thread in waiters + adders:
        thread.start()
    assert all(added.get(timeout=ranks.LIMIT_S / 2) for _ in adders) and not work.done
    c.barrier()
    c.send(bytes(8), 1 - c.rank)
    assert all(waited.get(timeout=ranks.LIMIT_S / 2) for _ in waiters)
    for thread in waiters + adders:
        thread.join()


def lock_is_free(c):
    """Other threads of Python run while an operation waits."""
    if c.rank == 0:
        steps = []
        thread = threading.Thread(target=lambda: [steps.append(1) or time.sleep(0) for _ in range(100)] and c.send(b"go", 1))
        thread.start()
        # Rank 1 comes only after the thread has sent.
        c.barrier()
        thread.join()
        assert len(steps) == 100
    else:
        c.receive(bytearray(2), 0)
        c.barrier()


def closes_meanwhile(c):
    """close() ends the operation that another thread waits for."""
    if c.rank == 0:
        inside = threading.Event()
        caught = queue.SimpleQueue()

        def waits():
            inside.set()
            try:
                c.receive(bytearray(4), 1)
            except rondo.Error as error:
                caught.put(error)

        thread = threading.Thread(target=waits)
        thread.start()
        inside.wait()
        c.close()
        assert isinstance(caught.get(timeout=ranks.LIMIT_S), (rondo.AbortedError, rondo.InvalidArgumentError))
        thread.join()
    else:
        raises(rondo.Error, "rank 0|closed", c.barrier)


def closes_during_split(c):
    """close() ends a split that waits for a rank which does not come."""
    if c.rank == 0:
        caught = queue.SimpleQueue()
        inside = threading.Event()

        def splits():
            inside.set()
            try:
                c.split(0)
            except rondo.Error as error:
                caught.put(error)

        thread = threading.Thread(target=splits)
        thread.start()
        inside.wait()
        c.receive(bytearray(1), 1)
        c.close()
        error = caught.get(timeout=ranks.LIMIT_S / 2)
        assert "another thread closed" in str(error) or isinstance(error, rondo.InvalidArgumentError), error
        thread.join()
    else:
        c.send(b"a", 0)
        raises(rondo.Error, "", lambda: c.receive(bytearray(1), 0))


def interrupted(c):
    """Ctrl-C ends the waiting; the operation goes on, and its buffer stays."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    if c.rank == 0:
        interrupted_buffers = []
        for wait in [lambda x: c.receive(x, 1, tag=1), lambda x: c.receive(x, 1, tag=2, wait=False).wait()]:
            x = watched(4, 0)
            gone = weakref.ref(x)
            alarm = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            alarm.start()
            raises(KeyboardInterrupt, "", wait, x)
            alarm.join()
            del x
            gc.collect()
            assert gone() is not None
            interrupted_buffers.append(gone)
        c.barrier()
        let_go(c, *interrupted_buffers)
        c.barrier()
    else:
        c.barrier()
        c.send(watched(4, 1), 0, tag=1)
        c.send(watched(4, 1), 0, tag=2)
        c.barrier()


@ranks.connects_itself
def interrupted_connect():
    """Ctrl-C ends connect(), also on the rank that has met this one."""
    rank = int(os.environ["RONDO_RANK"])
    if rank == 0:
        raises(rondo.AbortedError, "rank 1 could not connect: the program ended the call, as on Ctrl-C", rondo.connect, **ranks.CONNECT)
    elif rank == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        met = threading.Thread(target=interrupt_once_connected, args=[set(os.listdir("/proc/self/fd"))])
        met.start()
        raises(KeyboardInterrupt, "", rondo.connect, **ranks.CONNECT)
        met.join()


def interrupt_once_connected(before):
    while not any(is_connected(int(name)) for name in set(os.listdir("/proc/self/fd")) - before):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def is_connected(descriptor):
    try:
        one = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        return one.family == socket.AF_INET and bool(one.getpeername())
    except OSError:
        return False
    finally:
        one.detach()


def interrupted_split(c):
    """Ctrl-C ends a split that another rank does not call, and so the communicator."""

    def handler(*_):
        for call in c.close, c.barrier:
            raises(rondo.InvalidArgumentError, "a handler of a signal cannot", call)
        child = os.fork()
        if child == 0:
            try:
                raises(rondo.UnsupportedError, "forked child", c.barrier)
                c.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        raise KeyboardInterrupt

    if c.rank == 1:
        signal.signal(signal.SIGINT, handler)
        alarm = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        alarm.start()
        raises(KeyboardInterrupt, "", c.split, 0)
        alarm.join()
    else:
        raises(rondo.AbortedError, "the program ended the call, as on Ctrl-C", c.receive, bytearray(1), 1)


def forked(c):
    """A forked child can neither use the communicator nor harm it, also while a thread is inside."""
    work = c.receive(bytearray(4), 1 - c.rank, wait=False)
    dropped = c.receive(bytearray(4), 1 - c.rank, wait=False)
    waiter = threading.Thread(target=work.wait)
    waiter.start()
    c.barrier()
    child = os.fork()
    if child == 0:
        try:
            raises(rondo.UnsupportedError, "forked child", c.barrier)
            raises(rondo.UnsupportedError, "forked child", work.wait)
            assert not work.done and work.error is None and work.source is None
            del work, dropped
            c.abort("nothing")
            c.close()
            c.close()
            with rondo.connect(rank=0, size=1) as alone:
                alone.barrier()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    c.barrier()  # a message that came before the other rank's fork would end its receive
    c.batch([rondo.Send(bytes(4), 1 - c.rank), rondo.Send(bytes(4), 1 - c.rank)])
    assert work.wait() and dropped.wait()
    waiter.join()
    c.barrier()


@ranks.connects_itself
def exits_without_close():
    """Everything is alive at the end of the interpreter."""
    global kept
    c = rondo.connect(**ranks.CONNECT)
    c.barrier()
    memory = c.zeros(1000)
    kept = [c, memory, c.register(bytearray(10)), c.split(0), c.receive(memory, 1 - c.rank, wait=False)]
    c.receive(bytearray(4), 1 - c.rank, tag=1, wait=False)


@ranks.connects_itself
def exits_with_daemon():
    """A daemon thread waits at the end of the interpreter."""
    c = rondo.connect(**ranks.CONNECT)
    inside = threading.Event()

    def waits():
        inside.set()
        try:
            c.receive(bytearray(4), 1 - c.rank)
        except rondo.Error:
            pass

    threading.Thread(target=waits, daemon=True).start()
    inside.wait()


@ranks.connects_itself
def leaves_by_exit():
    """What the interpreter never destroys is closed as well, so the others see a rank that left in order."""
    c = rondo.connect(**ranks.CONNECT)
    c.barrier()
    if c.rank == 0:
        threading.Thread(target=lambda held: threading.Event().wait(), args=(c,), daemon=True).start()
    else:
        raises(rondo.PeerLeftError, "rank 0", c.barrier)


@ranks.connects_itself
def loses_all():
    """Garbage closes itself."""
    c = rondo.connect(**ranks.CONNECT)
    c.barrier()
    work = c.receive(bytearray(4), 1 - c.rank, wait=False)
    del c
    gc.collect()
    assert not work.wait(0.05) or work.error is not None
    del work
    gc.collect()
    # Nothing of it is left: the others may be gone.
    with rondo.connect(rank=0, size=1) as alone:
        alone.barrier()


class FileStore:
    """A store of the program, in files of one folder."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, key):
        return os.path.join(self.folder, "store-" + "".join(f"{byte:02x}" for byte in key.encode()))

    def put(self, key, value):
        with open(self.path(key) + f".{os.getpid()}", "w") as file:
            file.write(value)
        os.rename(file.name, self.path(key))

    def get(self, key, timeout):
        end = time.monotonic() + timeout
        while not os.path.exists(self.path(key)):
            if time.monotonic() > end:
                raise TimeoutError(key)
            time.sleep(0.001)
        with open(self.path(key)) as file:
            return file.read()


@ranks.connects_itself
def joins_by_store():
    with rondo.connect(store=FileStore(os.environ["RONDO_TEST_FOLDER"]), **ranks.CONNECT) as c:
        x = np.ones(3)
        c.all_reduce(x)
        assert (x == c.size).all()


class Broken:
    def put(self, key, value):
        raise KeyError("no room")

    def get(self, key, timeout):
        raise TimeoutError


@ranks.connects_itself
def joins_by_broken_store():
    error = raises(rondo.Error, "", rondo.connect, store=Broken(), rank=0, size=2, connect_deadline=0.3)
    assert isinstance(error.__cause__, KeyError), repr(error.__cause__)


class Lifetime(ranks.Case):
    def test_handles(self):
        self.run_ranks(2, dropped_work)
        self.run_ranks(2, awaited_work)
        self.run_ranks(2, kept_bytearray)
        self.run_ranks(2, closed_work)

    def test_threads(self):
        self.run_ranks(2, threads)
        self.run_ranks(2, lock_is_free)
        self.run_ranks(2, closes_meanwhile)
        self.run_ranks(2, closes_during_split)

    def test_signals(self):
        self.run_ranks(2, interrupted)
        self.run_ranks(3, interrupted_connect)
        self.run_ranks(2, interrupted_split)

    def test_fork(self):
        self.run_ranks(2, forked)

    def test_end_of_the_interpreter(self):
        for function in ranks.drawn_of((exits_without_close, exits_with_daemon, leaves_by_exit, loses_all), 2):
            for output in self.run_ranks(2, function):
                self.assertEqual(output, "")

    def test_stores(self):
        self.run_ranks(3, joins_by_store)
        self.run_ranks(1, joins_by_broken_store)


if __name__ == "__main__":
    ranks.main()
