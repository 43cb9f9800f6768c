# SPDX-License-Identifier: Apache-2.0
"""Element types, reductions, and what operations take and give."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, Union

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer as _Buffer

    # NumPy says that its arrays have a buffer since Python 3.12 only.
    Buffer = Union[_Buffer, numpy.ndarray[Any, Any]]
else:
    Buffer = Any


class DType(enum.IntEnum):
    """The element types of Rondo, with the numbers of rondo::DType.

    NumPy has no bfloat16 and no 8-bit floats. Give arrays of uint16 or uint8 with the bits, and the
    type as dtype=DType.BF16 or dtype="bf16". F8E4M3 and F8E5M2 are those of OFP8 1.0.
    """

    F64 = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    F8E4M3 = 4
    F8E5M2 = 5
    I64 = 6
    U64 = 7
    I32 = 8
    U32 = 9
    I8 = 10
    U8 = 11
    U16 = 12
    I16 = 13


class ReduceOp(enum.IntEnum):
    """What a reduction does, with the numbers of rondo::ReduceOp.

    MEAN is the sum divided once by the number of ranks. The mean of integers is exact, rounded
    towards zero. MIN and MAX propagate NaN. Integer sums and products wrap. The bit operations are for
    integers only.
    """

    SUM = 0
    MEAN = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BIT_AND = 5
    BIT_OR = 6
    BIT_XOR = 7


DTypeName = Literal["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "u64", "i32", "u32", "i8", "u8", "u16", "i16"]
# The names of NumPy and torch.
DTypeLongName = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "uint64", "int32", "uint32", "int8", "uint8", "uint16", "int16",
]


class ElementType(Protocol):
    """numpy.dtype, torch.dtype."""

    @property
    def itemsize(self) -> int: ...


DTypeLike = Union[DType, DTypeName, DTypeLongName, ElementType, "type[numpy.generic]"]
OpName = Literal["sum", "mean", "product", "min", "max", "bit_and", "bit_or", "bit_xor"]
OpLike = Union[ReduceOp, OpName]
OperationName = Literal[
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "gather", "scatter", "all_to_all", "all_gather_v",
    "reduce_scatter_v", "all_to_all_v", "send", "receive",
]


class Call(TypedDict, total=False):
    """The keyword arguments of every operation. All ranks must give the same urgent and scale."""

    wait: bool
    """False: start the operation and return at once. Default: True."""
    dtype: DTypeLike | None
    """What the items of the buffers mean, if their format does not say it: "bf16" in uint16. Takes the
    names and types of NumPy and torch too ("bfloat16", torch.bfloat16), but not NumPy's codes: "i8" has
    8 bits here. Items have as many bytes as the type, or one (a bytearray of floats)."""
    deadline: float | None
    """Seconds for the whole operation. Default: that of the communicator."""
    urgent: bool
    """The lane for small messages that must not queue behind large ones. Messages ignore it."""
    scale: float | None
    """The result of a reduction of floats is multiplied by this, once."""
    input_scale: float | None
    """This rank's input is multiplied by this as it is loaded, in sums and means of floats. Ranks
    may differ."""
    label: str | None
    """Appears in error messages and traces; the first 31 bytes are kept."""
    unattended: bool
    """With wait=False: nobody will wait soon, so the background thread drives at once, and not only
    after a millisecond. Ranks may differ."""


class Send(NamedTuple):
    """One send of Communicator.batch(), as Communicator.send()."""

    data: Buffer
    peer: int
    tag: int = 0
    dtype: DTypeLike | None = None


class Receive(NamedTuple):
    """One receive of Communicator.batch(), as Communicator.receive()."""

    out: Buffer
    peer: int
    tag: int = 0
    dtype: DTypeLike | None = None


class LinkCosts(NamedTuple):
    """What a link costs, as the planner assumes, in seconds."""

    latency_s: float
    seconds_per_byte: float
    frame_s: float


class PlanConstants(NamedTuple):
    """The planner's constants, the same on all ranks: for connect(plan_constants=...)."""

    host: LinkCosts
    """Links between ranks of one host."""
    network: LinkCosts
    """Links between hosts."""
    reduce_seconds_per_byte: float


class LateRank(NamedTuple):
    """Collectives in which this rank waited for another one alone: see docs/reference/metrics.md."""

    calls: int
    waited: float
    """Seconds, from the call of the last of the others to the first sign of that rank."""


class Statistics(NamedTuple):
    """Counters since connect(). Bytes are payload bytes of this rank."""

    operations: int
    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int
    staging_bytes: int
    """Staging memory held now."""
    failures: int
    """Operations that ended with an error."""
    segments_sent: int
    """TCP segments with data, over the open connections."""
    segments_resent: int
    """Those of them that the network had lost."""
    waited_ranks: float
    """Seconds in which the oldest operation was a collective that a rank had not called."""
    waited_transfer: float
    """Seconds in which they had called it: bytes on their way, or ranks further away."""
    waited_gpu: float
    """Seconds in which it waited for earlier work of this rank's GPU."""
    waited_messages: float
    """Seconds in which the oldest send, receive and the like was under way."""
    late_ranks: tuple[LateRank, ...]
    """By rank: how often this rank waited for that one alone."""


class Store(Protocol):
    """A key-value store of the program, for connect(store=...).

    Ranks write addresses and nonces to it, and read those of others. It is called on the thread
    that connects. An exception that it raises becomes the cause of the RendezvousError.
    """

    def put(self, key: str, value: str) -> None:
        """Stores the value, for all ranks."""

    def get(self, key: str, timeout: float) -> str | bytes:
        """Returns the value of the key, and waits for it for `timeout` seconds at most.

        Raises TimeoutError if there is none by then.
        """
