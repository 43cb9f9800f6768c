# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Rondo: one class for each code of rondo::Errc."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


class Error(RuntimeError):
    """A failure of Rondo. Its text names the operation, the ranks, the cause and the remedy.

    Each code has a class of its own. After the first failure of an operation the communicator is of
    no further use: every later operation raises the same cause. InvalidArgumentError is different:
    nothing was started, and the communicator is unharmed.
    """

    code: ClassVar[str] = "error"
    """The name of the code, as in rondo/error.h."""

    # tblib, and so Dask, unpickles exceptions by calling the __new__ of their class. That of
    # RuntimeError, which comes first, refuses classes that are also an OSError.
    def __new__(cls, *arguments: object) -> Self:
        base: type[Exception] = OSError if issubclass(cls, OSError) else RuntimeError
        return base.__new__(cls, *arguments)


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong. Nothing was started, and the communicator is unharmed."""

    code = "invalid_argument"


class MismatchError(Error):
    """Ranks called different operations, counts, types, reductions or roots."""

    code = "mismatch"


class DeadlineExceededError(Error, TimeoutError):
    """An operation or a join did not end in its time."""

    code = "deadline_exceeded"


class PeerLostError(Error, ConnectionError):
    """A connection to a rank broke: the process died or the network did."""

    code = "peer_lost"


class PeerLeftError(Error, ConnectionError):
    """A rank closed its communicator before this operation."""

    code = "peer_left"


class AbortedError(Error):
    """abort() was called, here or on another rank, or this communicator was closed meanwhile."""

    code = "aborted"


class RendezvousError(Error):
    """Ranks could not find each other: missing, doubled or disagreeing ranks."""

    code = "rendezvous"


class AuthenticationError(Error):
    """A peer does not know the job secret, or none was given where one is needed."""

    code = "authentication"


class CorruptError(Error):
    """A payload checksum or a frame from the wire is wrong."""

    code = "corrupt"


class UnsupportedError(Error):
    """Understood, but not possible here, for example in a forked child."""

    code = "unsupported"


class SystemFailureError(Error):
    """The operating system refused; the text names the call."""

    code = "system"


# The classes in the order of the numbers of rondo::Errc, which begin with 1; 0 is no error.
CLASSES: list[type[Error]] = [Error, *Error.__subclasses__()]


def exception_of(status: int, message: str) -> Error:
    """The exception for a number of rondo::Errc and a message."""
    return (CLASSES[status] if 0 < status < len(CLASSES) else Error)(message)
