# SPDX-License-Identifier: Apache-2.0
"""Measures one size in short turns: one library runs at a time, and Rondo runs before every
peer."""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import fmean, median
from time import monotonic
from typing import NamedTuple

from group import Failure, Group
from launch import BEFORE, CEILING, RONDO

# More would only cost memory and time between the turns.
ITERATIONS = range(5, 200_001)
WARM_UPS = range(1, 51)
PROBES = 3


class Turn(NamedTuple):
    """Median and mean over the iterations of the slowest rank's time, in microseconds."""

    p50: float
    mean: float


def figures_of(ranks: list[list[int]]) -> Turn:
    """The figures of one turn, from each rank's nanoseconds for every iteration."""
    slowest = list(map(max, zip(*ranks)))
    return Turn(median(slowest) / 1e3, fmean(slowest) / 1e3)


@dataclass
class Candidate:
    """One algorithm of one library."""

    group: Group
    algorithm: str
    command: str = "turn"  # or "fresh": see harness.cc
    iterations: int = 0

    @property
    def name(self) -> str:
        only = len(self.group.algorithms) == 1
        return self.group.name if only else f"{self.group.name}_{self.algorithm}"

    def get_ready(self, size: int, seconds: float) -> None:
        """Checks that the sums are right, and finds how many iterations the first turn needs."""
        for answer in self.group.command(f"check {self.algorithm} {size}"):
            if answer != "right":
                raise Failure(answer)
        self.iterations, tried = PROBES, 0
        # A turn begins and ends with wake-ups, so a short one shows too few iterations.
        while self.iterations > 2 * tried:
            tried = self.iterations
            self.turn(size, seconds)

    def turn(self, size: int, seconds: float) -> Turn:
        """Measures one turn. Sets the iterations of the next one: as many as fill `seconds`, but at
        least five unless these would take half of the group's deadline."""
        warm_up = warm_ups(self.iterations)
        start = monotonic()
        answers = self.group.command(f"{self.command} {self.algorithm} {size} {warm_up} {self.iterations}")
        lasted = monotonic() - start
        ranks = [[int(time) for time in answer.split()[1:]] for answer in answers]
        if any(len(times) != self.iterations for times in ranks):
            raise Failure("answers with a wrong number of times")
        rate = self.iterations / lasted
        self.iterations = max(1, min(_clamp(rate * seconds, ITERATIONS), int(rate * self.group.seconds / 2)))
        return figures_of(ranks)


@dataclass
class Statistic:
    """The medians over the rounds, of the turns' p50 or of their means. Keys of `us`: names of
    candidates. Keys of `ratios`: names in launch.RONDO."""

    us: dict[str, float]
    best: str | None
    ratios: dict[str, list[float]]

    def ratio(self, name: str) -> float | None:
        return median(self.ratios[name]) if self.ratios.get(name) else None


@dataclass
class Row:
    """The figures of one size. Keys of `rounds`, the p50 of each turn: names in launch.RONDO."""

    bytes: int
    p50: Statistic
    mean: Statistic
    rounds: dict[str, list[float]]
    ceilings: list[float]  # p50 of the ceiling / p50 of Rondo, of each round

    def p90(self, name: str) -> float | None:
        """The p90 of the rounds' p50 by nearest rank: of fewer than ten, the largest."""
        rounds = sorted(self.rounds.get(name, []))
        return rounds[ceil(0.9 * len(rounds)) - 1] if rounds else None

    def p90_over_median(self, name: str) -> float | None:
        return self.p90(name) / median(self.rounds[name]) if self.rounds.get(name) else None

    def percent_of_ceiling(self) -> float | None:
        return 100 * median(self.ceilings) if self.ceilings else None

    def as_json(self, transport: str, ranks: int) -> dict:
        def of_peers(statistic: Statistic) -> dict[str, float]:
            return {name: us for name, us in statistic.us.items() if name not in (*RONDO[transport], CEILING)}

        row = {"operation": "all_reduce", "transport": transport, "ranks": ranks, "bytes": self.bytes,
               "peers_us": of_peers(self.p50), "peers_mean_us": of_peers(self.mean), "best": self.p50.best, "best_mean": self.mean.best}
        for name in RONDO[transport]:
            of = name.removeprefix("rondo")
            row |= {f"{name}_us": self.p50.us.get(name), f"{name}_mean_us": self.mean.us.get(name), f"{name}_p90_us": self.p90(name),
                    f"p90_over_median{of}": self.p90_over_median(name), f"rounds{of}": self.rounds.get(name, []),
                    f"ratio{of}": self.p50.ratio(name), f"ratio_mean{of}": self.mean.ratio(name)}
        if transport == "shm":
            row |= {"ceiling_us": self.p50.us.get(CEILING), "ceiling_mean_us": self.mean.us.get(CEILING),
                    "percent_of_ceiling": self.percent_of_ceiling()}
        return row


class Samples:
    """The turns of all rounds of one size, over all starts of the libraries."""

    def __init__(self, size: int):
        self.bytes = size
        self.turns: dict[str, list[Turn]] = defaultdict(list)
        # By names of Rondo and of a peer: the peer's turns, and those of Rondo just before.
        self.pairs: dict[tuple[str, str], list[tuple[Turn, Turn]]] = defaultdict(list)


def measure(candidates: list[Candidate], samples: Samples, rounds: int, seconds: float, missing: dict[str, str], progress) -> None:
    """Measures `rounds` rounds. A library that fails is stopped and removed from `candidates`;
    `missing` gets the reason."""
    size = samples.bytes

    def attempt(candidate: Candidate, action):
        if candidate not in candidates:
            return None
        try:
            return action()
        except Failure as reason:
            missing[candidate.group.name] = f"{reason} (at {size} bytes, {candidate.algorithm} algorithm)"
            candidate.group.stop()
            candidates[:] = [other for other in candidates if other.group is not candidate.group]
            return None

    for candidate in list(candidates):
        progress(f"checking {candidate.name}")
        attempt(candidate, lambda: candidate.get_ready(size, seconds))

    ours, peers = ours_and_peers(candidates)
    for number in range(rounds):
        for peer in peers or [None]:
            progress(f"round {number + 1} of {rounds}, {peer.name if peer else 'no peer'}")
            turn = {candidate.name: attempt(candidate, partial(candidate.turn, size, seconds))
                    for candidate in [*ours, peer] if candidate}
            for name, figures in turn.items():
                if figures:
                    samples.turns[name].append(figures)
            for rondo in ours:
                if peer and turn[rondo.name] and turn[peer.name]:
                    samples.pairs[rondo.name, peer.name].append((turn[peer.name], turn[rondo.name]))


def ours_and_peers(candidates: list[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    names = {name for of_transport in RONDO.values() for name in of_transport}
    ours = [candidate for candidate in candidates if candidate.group.name in names]
    return ours, [candidate for candidate in candidates if candidate not in ours]


def warm_ups(iterations: int) -> int:
    return _clamp(iterations / 10, WARM_UPS)


def row_of(samples: Samples, candidates: list[Candidate]) -> Row:
    """Returns the medians. A library that failed in any start is no candidate any more, and gets
    no figure."""
    ours, peers = ours_and_peers(candidates)
    rounds = {rondo.name: [turn.p50 for turn in samples.turns[rondo.name]] for rondo in ours}
    present = {one.name for one in candidates}
    ceilings = [ceiling.p50 / rondo.p50 for ceiling, rondo in samples.pairs["rondo", CEILING] if {"rondo", CEILING} <= present]
    return Row(samples.bytes, *(_statistic(samples, kind, ours, peers) for kind in Turn._fields), rounds, ceilings)


def _statistic(samples: Samples, kind: str, ours: list[Candidate], peers: list[Candidate]) -> Statistic:
    us = {one.name: median(getattr(turn, kind) for turn in samples.turns[one.name]) for one in [*ours, *peers] if samples.turns[one.name]}
    rivals = [peer.name for peer in peers if peer.name in us and peer.name != CEILING]
    best = BEFORE["rondo"] if BEFORE["rondo"] in rivals else min(rivals, key=us.get, default=None)

    def ratios(name: str) -> list[float]:
        against = BEFORE[name] if BEFORE[name] in rivals else best
        return [getattr(peer, kind) / getattr(rondo, kind) for peer, rondo in samples.pairs[name, against]]

    # A library with several algorithms is as fast as the best of them.
    for group in {peer.group.name for peer in peers} - set(us):
        us[group] = min(us[peer.name] for peer in peers if peer.group.name == group)
    return Statistic(us, best, {rondo.name: ratios(rondo.name) for rondo in ours})


def _clamp(value: float, limits: range) -> int:
    return max(limits[0], min(limits[-1], int(value)))
