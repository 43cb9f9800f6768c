# SPDX-License-Identifier: Apache-2.0
"""Every operation with every element type, against NumPy."""

import functools
import os
import pathlib
import signal
import tempfile
import time

import numpy as np
import ranks
from small_floats import FLOATS, INTEGERS, STORED, decode, encode

import rondo

COUNT = 37
REDUCTIONS = {
    "sum": lambda inputs: functools.reduce(np.add, inputs),
    "mean": lambda inputs: functools.reduce(np.add, inputs) / len(inputs),
    "product": lambda inputs: functools.reduce(np.multiply, inputs),
    "min": lambda inputs: functools.reduce(np.minimum, inputs),
    "max": lambda inputs: functools.reduce(np.maximum, inputs),
}
BITS = {
    "bit_and": lambda inputs: functools.reduce(np.bitwise_and, inputs),
    "bit_or": lambda inputs: functools.reduce(np.bitwise_or, inputs),
    "bit_xor": lambda inputs: functools.reduce(np.bitwise_xor, inputs),
}


def values(rank, count=COUNT):
    """Ones and twos: every type holds them and the sums, means and products of four."""
    return np.random.default_rng(1000 * rank + count).integers(1, 3, count).astype(np.float64)


def expected(op, name, inputs):
    """The reduction of the ranks' values in this type, as float64."""
    if op in BITS:
        return BITS[op]([x.astype(np.int64) for x in inputs]).astype(np.float64)
    result = REDUCTIONS[op](inputs)
    return np.trunc(result) if op == "mean" and name in INTEGERS else result


def reductions(c):
    everybody = range(c.size)
    for name in INTEGERS:  # NumPy's own types; the sums of such values do not fit
        limits = np.iinfo(STORED[name])
        data = np.array([limits.max, limits.min, limits.max - c.rank], STORED[name])
        c.all_reduce(data, op="mean")
        assert data.tolist() == [limits.max, limits.min, limits.max - c.size // 2], (name, data)
    for name in FLOATS + INTEGERS:
        for op in list(REDUCTIONS) + (list(BITS) if name in INTEGERS else []):
            own = encode(values(c.rank), name)
            right = expected(op, name, [values(r) for r in everybody])
            what = f"{name} {op}"

            out = np.empty_like(own)
            c.all_reduce(own, out, op, dtype=name)
            np.testing.assert_array_equal(decode(out, name), right, what)
            in_place = own.copy()
            c.all_reduce(in_place, op=rondo.ReduceOp[op.upper()], dtype=rondo.DType[name.upper()])
            np.testing.assert_array_equal(in_place, out, what)

            out = np.zeros_like(own)
            c.reduce(own, out if c.rank == 1 else None, root=1, op=op, dtype=name)
            np.testing.assert_array_equal(decode(out, name), right if c.rank == 1 else 0 * right, what)

            large = encode(values(c.rank, COUNT * c.size), name)
            right = expected(op, name, [values(r, COUNT * c.size) for r in everybody])
            c.reduce_scatter(large, out, op, dtype=name)
            np.testing.assert_array_equal(decode(out, name), right.reshape(c.size, COUNT)[c.rank], what)

            counts = [COUNT + 1] + [COUNT] * (c.size - 2) + [COUNT - 1]
            out = np.empty(counts[c.rank], own.dtype)
            c.reduce_scatter_v(large, out, counts, op, dtype=name)
            np.testing.assert_array_equal(decode(out, name), np.split(right, np.cumsum(counts)[:-1])[c.rank], what)


def moved(name, rank, count=COUNT):
    """Any bits, in the type's array."""
    stored = np.dtype(STORED.get(name, name))
    return np.random.default_rng(2000 * rank + count).integers(0, 256, count * stored.itemsize).astype(np.uint8).view(stored)


def same(a, b, what):
    """Compares bits: some are NaN."""
    np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), what)


# These NumPy types have no type of Rondo.
FOREIGN = ["complex64", "complex128", "longdouble", "V3", "M8[s]"]


def moves(c):
    everybody = range(c.size)
    for name in list(STORED) + FOREIGN:
        given = {"dtype": name} if name in STORED else {}
        all_of = [moved(name, r) for r in everybody]
        own, kind = all_of[c.rank].copy(), all_of[0].dtype

        data = own.copy()
        c.broadcast(data, root=c.size - 1, **given)
        same(data, all_of[-1], f"broadcast {name}")

        out = np.zeros(COUNT * c.size, kind)
        c.all_gather(own, out, **given)
        same(out, np.concatenate(all_of), f"all_gather {name}")
        in_place = np.zeros((c.size, COUNT), kind)
        in_place[c.rank] = own
        c.all_gather(in_place[c.rank], in_place, **given)
        same(in_place.reshape(-1), out, f"all_gather in place {name}")

        gathered = np.zeros((c.size, COUNT), kind) if c.rank == 0 else None
        c.gather(own, gathered, **given)
        if c.rank == 0:
            same(gathered.reshape(-1), out, f"gather {name}")
        back = np.zeros(COUNT, kind)
        c.scatter(gathered, back, **given)
        same(back, own, f"scatter {name}")

        large = [moved(name, r, COUNT * c.size) for r in everybody]
        right = np.concatenate([block.reshape(c.size, COUNT)[c.rank] for block in large])
        exchanged = np.zeros_like(large[0])
        c.all_to_all(large[c.rank], exchanged, **given)
        same(exchanged, right, f"all_to_all {name}")
        data = large[c.rank].copy()
        c.all_to_all(data, **given)
        same(data, right, f"all_to_all in place {name}")

        counts = [r * 5 for r in everybody]
        out = np.zeros(sum(counts), kind)
        c.all_gather_v(own[: counts[c.rank]], out, counts, **given)
        same(out, np.concatenate([all_of[r][: counts[r]] for r in everybody]), f"all_gather_v {name}")

        send_counts, receive_counts = [c.rank + r for r in everybody], [r + c.rank for r in everybody]
        parts = [[moved(name, r, 64)[s : s + r + s] for s in everybody] for r in everybody]
        out = np.zeros(sum(receive_counts), kind)
        c.all_to_all_v(np.concatenate(parts[c.rank]), send_counts, out, receive_counts, **given)
        same(out, np.concatenate([parts[r][c.rank] for r in everybody]), f"all_to_all_v {name}")

        following, previous = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        out = np.zeros(COUNT, kind)
        work = c.send(own, following, tag=7, wait=False, **given)
        c.receive(out, previous, tag=7, **given)
        assert work.wait()
        same(out, all_of[previous], f"send {name}")

        out[:] = np.zeros(COUNT, kind)
        own_type = given.get("dtype")
        c.batch([rondo.Receive(out, previous, 9, own_type), rondo.Send(own, following, 9, own_type)])
        same(out, all_of[previous], f"batch {name}")
    c.barrier()


def other_reductions(c):
    """Booleans, complex numbers, a scale, and several operations at once."""
    flags = np.array([c.rank == 0, True, False, c.rank < 2])
    for op, right in {"max": [True, True, False, True], "min": [c.size == 1, True, False, c.size <= 2], "bit_or": [True, True, False, True]}.items():
        out = np.empty_like(flags)
        c.all_reduce(flags, out, op)
        np.testing.assert_array_equal(out, right, op)

    total = sum(r + 2j * r for r in range(c.size))
    numbers = np.full((2, 3), c.rank + 2j * c.rank, np.complex64)
    c.all_reduce(numbers)
    np.testing.assert_array_equal(numbers, np.full((2, 3), total, np.complex64))
    c.all_reduce(numbers, op="mean")
    np.testing.assert_array_equal(numbers, np.full((2, 3), total, np.complex64))

    x = np.full(5, c.rank + 1, np.float32)
    c.all_reduce(x, scale=0.5, urgent=True, label="half", deadline=20)
    np.testing.assert_array_equal(x, np.full(5, sum(range(c.size + 1)) / 2, np.float32))

    x = np.full(5, 1, np.float32)
    c.all_reduce(x, input_scale=c.rank + 1)
    np.testing.assert_array_equal(x, np.full(5, sum(range(c.size + 1)), np.float32))

    arrays = [np.full(1000, i + c.rank, np.int32) for i in range(20)]
    works = [c.all_reduce(a, wait=False, unattended=i % 2 == 0) for i, a in enumerate(arrays)]
    for i, (array, work) in enumerate(zip(arrays, works)):
        assert work.wait(30) and work.done and work.error is None
        np.testing.assert_array_equal(array, np.full(1000, c.size * i + sum(range(c.size))))


def from_any_rank(c):
    """Rank 0 answers whoever asks, and Work.source says who that was."""
    data = np.zeros(3, np.float32)
    if c.rank == 0:
        sources = []
        for i in range(c.size - 1):
            work = c.receive_any(data, tag=5, wait=i % 2 == 0)
            assert work.wait(30) and data[0] == work.source
            sources.append(work.source)
        assert sorted(sources) == list(range(1, c.size))
        pending = c.receive_any(data, tag=6, wait=False)
        assert pending.source is None
        c.barrier()
        pending.wait()
        assert pending.source == c.size - 1
    else:
        data[:] = c.rank
        assert c.send(data, 0, tag=5).source is None
        c.barrier()
        if c.rank == c.size - 1:
            c.send(data, 0, tag=6)


@ranks.connects_itself
def given_constants():
    constants = rondo.PlanConstants(rondo.LinkCosts(0.125, 1e-9, 0.0), rondo.LinkCosts(0.5, 2e-9, 0.25), 0.0005)
    with rondo.connect(plan_constants=constants, constants="/nowhere/at/all", **ranks.CONNECT) as c:
        assert c.constants() == constants and c.constants().network.frame_s == 0.25
        c.barrier()
    try:
        rondo.connect(rank=0, size=1, plan_constants=(1, 2))
    except rondo.InvalidArgumentError as error:
        assert "PlanConstants" in str(error), error
    else:
        raise AssertionError("no error")


def groups(c):
    part = c.split(c.rank % 2, key=-c.rank)
    assert part.size == (c.size + 1 - c.rank % 2) // 2
    own = np.array([c.rank])
    out = np.zeros(part.size, own.dtype)
    part.all_gather(own, out)
    np.testing.assert_array_equal(out, sorted(range(c.rank % 2, c.size, 2), reverse=True))
    part.close()
    assert c.split(0 if c.rank == 0 else -1) is None or c.rank == 0

    assert c.local_ranks() == list(range(c.size))
    assert " over " in c.describe("all_reduce", 1000) and c.algorithm("all_gather", 10, "bf16")
    assert c.describe_peer((c.rank + 1) % c.size) and not c.describe_peer(c.rank) and c.address()
    counted = c.statistics()
    assert counted.operations > 0 and counted.failures == 0 and counted.waited_gpu == 0
    assert counted.waited_ranks >= 0 and counted.waited_transfer >= 0 and counted.waited_messages >= 0
    assert len(counted.late_ranks) == c.size and counted.late_ranks[c.rank] == rondo.LateRank(0, 0.0)


def dumps(c):
    """Dumps in the folder, at a path, and for a signal from outside while the program does something else."""
    folder = pathlib.Path(os.environ["RONDO_TEST_FOLDER"])
    own = folder / f"own{c.rank}"
    assert c.dump(own) == str(own) and c.dump(str(own)) == str(own)
    odd = os.fsencode(folder) + b"/\xff%d" % c.rank  # not UTF-8
    assert c.dump(odd) == os.fsdecode(odd) == c.dump(os.fsdecode(odd)) and os.path.exists(odd)
    c.barrier()
    usual = pathlib.Path(c.dump())
    assert usual.parent.parent == folder and usual.name == f"rank{c.rank}.call.dump", usual
    for file in own, usual:
        assert file.read_text().startswith("rondo dump 1\n") and "name=barrier" in usual.read_text()
    try:
        c.dump(os.fsencode(folder) + b"/missing/file\xff")
    except rondo.SystemFailureError as error:
        assert "missing/file" in str(error)
    else:
        raise AssertionError("no error")

    reading, writing = os.pipe()
    standard_error = os.dup(2)
    os.dup2(writing, 2)
    os.kill(os.getpid(), signal.SIGUSR2)
    said = os.read(reading, 4096).decode()
    os.dup2(standard_error, 2)
    asked = usual.with_name(f"rank{c.rank}.signal.dump")
    assert str(asked) in said and "why=signal" in asked.read_text(), said
    c.barrier()


def late_rank(c):
    """Rank 1 comes late to each call, and rank 0 counts that."""
    ones = np.ones(1, np.float32)
    for _ in range(50):
        if c.rank == 1:
            time.sleep(0.005)
        c.all_reduce(ones.copy(), label="step")
    if c.rank == 0:
        assert c.statistics().late_ranks[1].calls > 10
        assert c.statistics().late_ranks[1].waited > 0.05
        assert c.statistics().waited_ranks >= 0.9 * c.statistics().late_ranks[1].waited


def metrics_of_one_rank(c):
    with tempfile.TemporaryDirectory() as folder:
        with rondo.connect(rank=0, size=1, metrics=folder + "/train-%r.prom", metrics_period=60) as alone:
            alone.barrier(label="ten")
        with open(folder + "/train-0.prom", encoding="utf-8") as file:
            assert 'rondo_operations_total{run="train",rank="0",operation="barrier",tag="ten"} 1\n' in file.read()
    try:
        rondo.connect(rank=0, size=1, metrics="/no/folder/m")
    except rondo.InvalidArgumentError as error:
        assert "(Options::metrics) is '/no/folder/m'" in str(error)
    else:
        raise AssertionError("a folder that does not exist is taken")


class Operations(ranks.Case):
    def test_reductions(self):
        self.run_one_of((2, reductions, {}), (4, reductions, ranks.TCP))

    def test_moves(self):
        self.run_one_of((3, moves, {}), (2, moves, ranks.TCP))

    def test_other_reductions(self):
        self.run_ranks(3, other_reductions)

    def test_groups(self):
        self.run_ranks(4, groups)

    def test_from_any_rank(self):
        self.run_ranks(4, from_any_rank)

    def test_given_constants(self):
        self.run_ranks(2, given_constants)

    def test_dumps(self):
        with tempfile.TemporaryDirectory(prefix="rondo-dumps-") as folder:
            self.run_ranks(2, dumps, RONDO_DUMP=folder, RONDO_TEST_FOLDER=folder, RONDO_DUMP_SIGNAL="SIGUSR2")

    def test_a_late_rank(self):
        self.run_one_of((2, late_rank, {}), (2, late_rank, ranks.TCP))

    def test_metrics(self):
        self.run_ranks(1, metrics_of_one_rank)

    def test_one_rank(self):
        self.run_ranks(1, moves)
        self.run_ranks(1, other_reductions)


if __name__ == "__main__":
    ranks.main()
