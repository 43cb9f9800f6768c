# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes, on NumPy arrays and everything else that has a buffer.

    import numpy, rondo

    with rondo.connect() as c:           # started by: rondo run -n 4 python program.py
        x = numpy.full(1000, c.rank, "f4")
        c.all_reduce(x)                  # in place, sum

connect() has the options, Communicator the operations and the rules for buffers, Call the keyword
arguments of every operation, Error the failures. Nothing here imports PyTorch.
"""

from ._communicator import Communicator, connect
from ._core import Memory, Registration, Work
from ._core import version as _version
from ._errors import (
    AbortedError,
    AuthenticationError,
    CorruptError,
    DeadlineExceededError,
    Error,
    InvalidArgumentError,
    MismatchError,
    PeerLeftError,
    PeerLostError,
    RendezvousError,
    SystemFailureError,
    UnsupportedError,
)
from ._types import Call, DType, DTypeLike, LateRank, LinkCosts, OpLike, PlanConstants, Receive, ReduceOp, Send, Statistics, Store

__version__ = _version()

__all__ = [
    "AbortedError",
    "AuthenticationError",
    "Call",
    "Communicator",
    "CorruptError",
    "DType",
    "DTypeLike",
    "DeadlineExceededError",
    "Error",
    "InvalidArgumentError",
    "LateRank",
    "LinkCosts",
    "Memory",
    "MismatchError",
    "OpLike",
    "PeerLeftError",
    "PeerLostError",
    "PlanConstants",
    "Receive",
    "ReduceOp",
    "Registration",
    "RendezvousError",
    "Send",
    "Statistics",
    "Store",
    "SystemFailureError",
    "UnsupportedError",
    "Work",
    "connect",
]
