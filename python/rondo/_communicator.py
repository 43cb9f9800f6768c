# SPDX-License-Identifier: Apache-2.0
"""Communicator and connect()."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Memory, Registration, Work
from ._types import Buffer, Call, DTypeLike, LateRank, LinkCosts, OperationName, OpLike, PlanConstants, Receive, ReduceOp, Send, Statistics, Store

if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike as NumpyDType
    from typing_extensions import Unpack


class Communicator:
    """A group of ranks that call the same operations in the same order. connect() makes one.

    Every rank calls each operation with the same count, type, op, root, urgent and scale. If they
    differ, every rank gets MismatchError, which names both calls. An operation is done on a rank
    only when all ranks have called it. After the first failure every later operation raises the
    same cause: close the communicator and make a new one.

    **Buffers** are NumPy arrays, or other objects with a buffer (bytearray, array.array, memoryview,
    Memory), contiguous in C order; outputs are writable. Their shape does not matter: elements are
    counted. Types that NumPy does not have come as integers of their size, with dtype=. Booleans
    are reduced with min, max and the bit operations, complex numbers with sum and mean. Elements of
    other types are moved as bytes. The caller must not write to an input, or touch an output, before
    the operation ends. Buffers are kept alive until then, also if the Work is dropped.

    **Waiting**: an operation returns when it is done. With wait=False it returns at once, and
    Work.wait(), or `await work` in a coroutine, waits. Every operation takes the keyword arguments
    of Call. Python's lock is free while an operation runs. A signal such as Ctrl-C ends the waiting
    and not the operation.

    **Errors**: InvalidArgumentError for arguments that cannot be: nothing was started. Any other
    Error when the operation fails: from the call, or from Work.wait() with wait=False.

    **Threads**: any thread may call anything. Operations of one kind (bulk, urgent, messages) must
    be started in the same order on all ranks, so start each kind on one thread, or in an order that
    the program keeps.

    **End**: use it in a `with` statement, or call close(). If the block ends with an exception, the
    communicator is aborted with its text, so that the other ranks stop at once and say why. At the
    end of the interpreter open communicators are closed.
    """

    def __init__(self, core: _core.Communicator) -> None:
        """For connect() and split()."""
        self._core = core
        self._rank = core.rank()
        self._size = core.size()

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core.closed

    def __repr__(self) -> str:
        return f"<rondo.Communicator rank {self._rank} of {self._size}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()

    def close(self) -> None:
        """Leaves the other ranks. Pending operations end with AbortedError, also on other threads.

        Takes two seconds at most, whatever the peers do. More calls do nothing.
        """
        self._core.close()

    def abort(self, text: str = "") -> None:
        """Ends every pending operation on every rank with AbortedError and this text (1000 bytes).

        Thread-safe. Does nothing after a failure or after close().
        """
        self._core.abort(text)

    def dump(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None) -> str:
        """Writes what this rank knows of its operations to a file, for `rondo trace`; returns its path.

        None: in the folder of dumps (RONDO_DUMP). Thread-safe, also after a failure.
        """
        return os.fsdecode(self._core.dump(b"" if path is None else os.fsencode(path)))

    # ---- collectives ----

    def all_reduce(self, data: Buffer, out: Buffer | None = None, op: OpLike = ReduceOp.SUM, **call: Unpack[Call]) -> Work:
        """out[i] = op over ranks of data[i].

        data: n elements. out: n elements; None: in place, data is writable and gets the result.
        """
        return self._core.all_reduce(data, out, op, call)

    def reduce(self, data: Buffer, out: Buffer | None = None, root: int = 0, op: OpLike = ReduceOp.SUM, **call: Unpack[Call]) -> Work:
        """As all_reduce(), with the result on `root` only. Elsewhere out is ignored and data is read."""
        return self._core.reduce(data, out, root, op, call)

    def broadcast(self, data: Buffer, root: int = 0, **call: Unpack[Call]) -> Work:
        """Copies root's data to the data of all ranks. data: n elements, writable but on the root."""
        return self._core.broadcast(data, root, call)

    def all_gather(self, data: Buffer, out: Buffer, **call: Unpack[Call]) -> Work:
        """out[r * n + i] = data[i] of rank r.

        data: n elements. out: size * n elements. In place: data is this rank's block of out.
        """
        return self._core.all_gather(data, out, call)

    def reduce_scatter(self, data: Buffer, out: Buffer, op: OpLike = ReduceOp.SUM, **call: Unpack[Call]) -> Work:
        """out[i] = op over ranks of data[rank * n + i].

        data: size * n elements. out: n elements. In place: out is this rank's block of data.
        """
        return self._core.reduce_scatter(data, out, op, call)

    def gather(self, data: Buffer, out: Buffer | None = None, root: int = 0, **call: Unpack[Call]) -> Work:
        """As all_gather(), with the result on `root` only. Elsewhere out is ignored."""
        return self._core.gather(data, out, root, call)

    def scatter(self, data: Buffer | None, out: Buffer, root: int = 0, **call: Unpack[Call]) -> Work:
        """out[i] = data[rank * n + i] of root.

        data: size * n elements on the root, ignored elsewhere. out: n elements. In place, on the
        root: out is root's block of data.
        """
        return self._core.scatter(data, out, root, call)

    def all_to_all(self, data: Buffer, out: Buffer | None = None, **call: Unpack[Call]) -> Work:
        """Block j of out is block `rank` of rank j's data.

        data, out: size * n elements. out None: in place, data is writable; each rank may choose.
        """
        return self._core.all_to_all(data, out, call)

    def all_gather_v(self, data: Buffer, out: Buffer, counts: Sequence[int], **call: Unpack[Call]) -> Work:
        """As all_gather(), but rank r's block has counts[r] elements; 0 is allowed.

        data: counts[rank] elements. out: sum(counts) elements, blocks in the order of ranks. All
        ranks give the same counts.
        """
        return self._core.all_gather_v(data, out, counts, call)

    def reduce_scatter_v(self, data: Buffer, out: Buffer, counts: Sequence[int], op: OpLike = ReduceOp.SUM, **call: Unpack[Call]) -> Work:
        """As reduce_scatter(), but rank r gets counts[r] elements; 0 is allowed.

        data: sum(counts) elements. out: counts[rank] elements. All ranks give the same counts.
        """
        return self._core.reduce_scatter_v(data, out, counts, op, call)

    def all_to_all_v(self, data: Buffer, send_counts: Sequence[int], out: Buffer, receive_counts: Sequence[int], **call: Unpack[Call]) -> Work:
        """Sends part r of data to rank r, where it becomes part `rank` of out.

        data: sum(send_counts) elements, parts in the order of ranks. out: sum(receive_counts)
        elements. What this rank sends to r must be what r receives from it. data and out do not
        overlap.
        """
        return self._core.all_to_all_v(data, send_counts, out, receive_counts, call)

    def barrier(self, **call: Unpack[Call]) -> Work:
        """Done when all ranks have called it."""
        return self._core.barrier(call)

    # ---- messages ----

    def send(self, data: Buffer, peer: int, tag: int = 0, **call: Unpack[Call]) -> Work:
        """Sends data to one rank. Done when data may be changed.

        Messages between two ranks with one tag (0 to 2^32 - 1) are matched in order. They have an
        order of their own, apart from collectives.
        """
        return self._core.send(data, peer, tag, call)

    def receive(self, out: Buffer, peer: int, tag: int = 0, **call: Unpack[Call]) -> Work:
        """Receives the oldest message of this peer with this tag that no earlier receive has taken.

        Count and type must be those of the send, else MismatchError.
        """
        return self._core.receive(out, peer, tag, call)

    def receive_any(self, out: Buffer, tag: int = 0, **call: Unpack[Call]) -> Work:
        """As receive(), from any rank that has sent a message with this tag: Work.source says which.

        It takes the message that arrived first, so the order between senders is left to chance. If
        this and a receive() could both take a message, the one that was called first gets it.
        """
        return self._core.receive_any(out, tag, call)

    def batch(self, transfers: Sequence[Send | Receive], **call: Unpack[Call]) -> Work:
        """Starts all transfers at once; the one Work is done when all are.

        Ranks may list them in any order: if every send has its receive, the batches end.
        """
        rows = [(isinstance(each, Receive), each[0], each.peer, each.tag, each.dtype) for each in transfers]
        return self._core.batch(rows, call)

    # ---- groups, memory, information ----

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Makes a communicator of the ranks with the same color, ordered by key, then by rank.

        Returns None for a negative color. All ranks call it, in the same order as other operations.
        """
        part = self._core.split(color, key)
        return Communicator(part) if part is not None else None

    def allocate(self, bytes: int) -> Memory:
        """Allocates zeroed memory that the ranks of this host work on without copies.

        An operation runs without copies if all ranks give such memory. It may outlive the
        communicator.
        """
        return Memory(self._core, bytes)

    def zeros(self, shape: int | Sequence[int], dtype: NumpyDType = "float32") -> numpy.ndarray[Any, Any]:
        """As allocate(), as an array of zeros."""
        import numpy

        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        type_of = numpy.dtype(dtype)
        memory = self.allocate(math.prod(lengths) * type_of.itemsize)
        elements: numpy.ndarray[Any, Any] = numpy.frombuffer(memoryview(memory), type_of)
        return elements.reshape(lengths)

    def register(self, data: Buffer) -> Registration:
        """Makes memory known to the transports until Registration.close(), as for network cards.

        Operations work on other memory as well, through copies where a transport needs it.
        Memory from allocate() is registered already.
        """
        return Registration(self._core, data)

    def local_ranks(self) -> list[int]:
        """The ranks on this rank's host, with this one, ascending."""
        return self._core.local_ranks()

    def describe(self, operation: OperationName, count: int, dtype: DTypeLike = "f32") -> str:
        """What the planner chooses for a call: "ring over tcp, segments of 1 MiB, 4 in flight".

        count: elements of the smaller buffer, the block of one rank.
        """
        return self._core.describe(operation, count, dtype)

    def algorithm(self, operation: OperationName, count: int, dtype: DTypeLike = "f32") -> str:
        """The name of the algorithm alone: "ring"."""
        return self._core.algorithm(operation, count, dtype)

    def describe_peer(self, peer: int) -> str:
        """How a rank is reached, by which interfaces; empty for this rank."""
        return self._core.describe_peer(peer)

    def address(self) -> str:
        """Where this rank's data connections from other hosts arrive: "host:port"."""
        return self._core.address()

    def statistics(self) -> Statistics:
        """Counters since connect()."""
        *counters, late_ranks = self._core.statistics()
        return Statistics._make((*counters, tuple(LateRank(*one) for one in late_ranks)))

    def constants(self) -> PlanConstants:
        """The planner's constants: the defaults, measured, from a file, or those of connect()."""
        host, network, reduce = self._core.constants()
        return PlanConstants(LinkCosts(*host), LinkCosts(*network), reduce)


async def awaited(work: Work) -> bool:
    """`await work`: a thread of the event loop's executor waits. It does so in short turns, and is
    free soon after the coroutine was cancelled."""
    import asyncio  # only for programs that use it: it takes long

    loop = asyncio.get_running_loop()
    while not await loop.run_in_executor(None, work.wait, 0.1):
        pass
    return True


def connect(
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
    store: Store | None = None,
    secret: str | None = None,
    connect_deadline: float | None = None,
    deadline: float | None = None,
    transports: str | Sequence[str] | None = None,
    interfaces: str | Sequence[str] | None = None,
    connections: int | None = None,
    ports: tuple[int, int] | None = None,
    host: str | None = None,
    ranks_on_host: int | None = None,
    wait: str | None = None,
    reproducible: bool | None = None,
    checksum: bool | None = None,
    integrity: str | None = None,
    algorithm: str | None = None,
    constants: str | None = None,
    plan_constants: PlanConstants | None = None,
    measure: bool | None = None,
    segment_bytes: int | None = None,
    depth: int | None = None,
    staging_bytes: int | None = None,
    metrics: str | None = None,
    metrics_period: float | None = None,
    metrics_labels: str | None = None,
) -> Communicator:
    """Joins the other ranks and returns their communicator.

    None: from the environment: Rondo's variables (RONDO_RANK, RONDO_SIZE, RONDO_RENDEZVOUS ...), or
    those of `rondo run`, torchrun, mpirun and srun; else the default. docs/reference/environment.md has them.

    rank, size: this rank from 0, and how many there are.
    rendezvous: "tcp://host:port" (rank 0 listens there), "file:///path" or "env://".
    store: the program's own key-value store, used instead of the rendezvous.
    secret: the job secret, the same on all ranks. Needed between hosts or users, unless the launcher
    carries one.
    connect_deadline, deadline: seconds for this call (30), and for each operation (300).
    transports, interfaces: those that are allowed: "shm,tcp", ["eth0", "10.0.0.0/8"].
    connections: TCP connections between two interfaces, 1 to 16.
    ports: the first and the last port for listening.
    host: ranks with the same text count as ranks of one host.
    ranks_on_host: ranks that share the cores of this host, over all communicators.
    wait: how this rank waits for others: "auto", "spin" or "sleep".
    reproducible: results depend only on the inputs and the number of ranks. All ranks alike.
    checksum: CRC32C of every payload. All ranks alike.
    integrity: what the secret protects between hosts: "headers" or "payload".
    algorithm, segment_bytes, depth, staging_bytes, constants, plan_constants, measure: for
    measurements; see rondo/options.h. plan_constants replace the file `constants`.

    metrics: a file for Prometheus, written every metrics_period seconds (5): docs/reference/metrics.md.
    metrics_labels: labels of every sample: "run=mine,team=vision".

    Raises RendezvousError, AuthenticationError, DeadlineExceededError (it names the ranks that have
    not come), InvalidArgumentError, MismatchError, UnsupportedError, PeerLostError or
    SystemFailureError, on every rank with one cause. A signal such as Ctrl-C ends the call, and the
    ranks that it has reached get AbortedError.
    """
    return Communicator(_core.connect(dict(locals())))
