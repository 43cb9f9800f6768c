# SPDX-License-Identifier: Apache-2.0
"""Failures reach every rank as exceptions that say who and why."""

import re

import numpy as np
import ranks

import rondo


def raises(kind, pattern, function, *arguments, **keywords):
    """Calls the function, which must raise this."""
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert re.search(pattern, str(error)), f"'{error}' has no '{pattern}'"
        return error
    raise AssertionError(f"nothing was raised, where '{pattern}' was expected")


def different_counts(c):
    x = np.zeros(10 + c.rank)
    error = raises(rondo.MismatchError, "all_reduce.*11 f64", c.all_reduce, x)
    # Later operations tell the same cause.
    assert str(error) in str(raises(rondo.MismatchError, "", c.barrier)) or str(error).split(":")[-1] in str(raises(rondo.MismatchError, "", c.barrier))


def different_work(c):
    work = c.all_reduce(np.zeros(10, np.float32 if c.rank else np.float64), wait=False)
    error = raises(rondo.MismatchError, "f32", work.wait)
    assert work.done and str(work.error) == str(error) and type(work.error) is rondo.MismatchError
    raises(rondo.MismatchError, "f32", work.wait, 1)


def deadline(c):
    if c.rank == 0:
        error = raises(TimeoutError, "rank 1", c.all_reduce, np.zeros(4), deadline=0.5, label="gradients")
        assert "gradients" in str(error), error
    else:
        # Rank 0's failure arrives without a call of this rank.
        raises(rondo.DeadlineExceededError, "which rank 1 has not called", c.receive, bytearray(1), 0, tag=99)


def killed(c):
    c.barrier()
    if c.rank == 1:
        ranks.die()
    # Which call fails depends on when the death is seen.
    error = raises(ConnectionError, "rank 1", lambda: [c.all_reduce(np.zeros(1000)) for _ in range(1000)])
    assert isinstance(error, rondo.PeerLostError), repr(error)


@ranks.connects_itself
def block_raises():
    """A block that ends with an exception tells the other ranks."""
    with rondo.connect(**ranks.CONNECT) as c:
        if c.rank == 0:
            raise ValueError("the input file is empty")
        raises(rondo.AbortedError, "ValueError: the input file is empty", c.barrier)


def aborts(c):
    raises(rondo.InvalidArgumentError, "^all_gather_v: the counts add up to more", c.all_gather_v, b"", bytearray(), [1 << 63] * 2)
    if c.rank == 0:
        c.abort("the loss is NaN")
    raises(rondo.AbortedError, "rank 0 called abort: .*the loss is NaN", lambda: [c.barrier() for _ in range(1000)])


def leaves(c):
    if c.rank == 0:
        c.close()
        raises(rondo.InvalidArgumentError, "the communicator is closed", c.barrier)
        raises(rondo.InvalidArgumentError, "the communicator is closed", c.all_gather, b"", bytearray())
        raises(rondo.InvalidArgumentError, "the communicator is closed", c.statistics)
        raises(rondo.InvalidArgumentError, "the communicator is closed", c.split, 0)
        raises(rondo.InvalidArgumentError, "the communicator is closed", c.allocate, 10)
        assert c.closed and (c.rank, c.size) == (0, 2) and "closed" in repr(c)
        c.abort("too late")
        c.close()
    else:
        raises(rondo.PeerLeftError, "rank 0", c.barrier)


@ranks.connects_itself
def nobody_comes():
    error = raises(rondo.Error, "rank 1", rondo.connect, size=2, rank=0, connect_deadline=0.3)
    assert type(error) in (rondo.RendezvousError, rondo.DeadlineExceededError), repr(error)


class Errors(ranks.Case):
    def test_mismatch(self):
        self.run_ranks(2, different_counts)
        self.run_ranks(2, different_work)

    def test_deadline(self):
        self.run_ranks(2, deadline)

    def test_killed(self):
        self.run_ranks(3, killed, {1: -9})
        self.run_ranks(3, killed, {1: -9}, RONDO_TRANSPORT="tcp")

    def test_abort(self):
        outputs = self.run_ranks(2, block_raises, {0: 1})
        self.assertIn("ValueError: the input file is empty", outputs[0])
        self.run_ranks(2, aborts)

    def test_closed(self):
        self.run_ranks(2, leaves)

    def test_nobody_comes(self):
        self.run_ranks(1, nobody_comes)


if __name__ == "__main__":
    ranks.main()
