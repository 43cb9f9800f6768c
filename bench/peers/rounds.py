# SPDX-License-Identifier: Apache-2.0
"""Measures one size in short turns: one library runs at a time, and Rondo runs before every
peer."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from group import Failure, Group
from launch import BEFORE, RONDO

ITERATIONS = range(5, 1001)
WARM_UPS = range(1, 51)
PROBES = 3


@dataclass
class Candidate:
    """One algorithm of one library."""

    group: Group
    algorithm: str
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
        self.iterations = PROBES
        self.turn(size, seconds)

    def turn(self, size: int, seconds: float) -> float:
        """Returns the p50 in microseconds: the median over iterations of the slowest rank's
        time. Sets the next turn's iterations."""
        warm_up = warm_ups(self.iterations)
        answers = self.group.command(f"turn {self.algorithm} {size} {warm_up} {self.iterations}")
        ranks = [[int(time) for time in answer.split()[1:]] for answer in answers]
        if any(len(times) != self.iterations for times in ranks):
            raise Failure("answers with a wrong number of times")
        p50 = median(map(max, zip(*ranks))) / 1e3
        self.iterations = _clamp(seconds * 1e6 / p50, ITERATIONS)
        return p50


@dataclass
class Row:
    """The medians of one size. Keys of `rondo_us` and `ratios`: names in launch.RONDO. Keys of
    `peers_us`: peers and their algorithms."""

    bytes: int
    rondo_us: dict[str, float] = field(default_factory=dict)
    peers_us: dict[str, float] = field(default_factory=dict)
    best: str | None = None
    ratios: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float | None:
        return median(self.ratios[name]) if self.ratios.get(name) else None

    def as_json(self, transport: str, ranks: int) -> dict:
        row = {"operation": "all_reduce", "transport": transport, "ranks": ranks, "bytes": self.bytes,
               "rondo_us": self.rondo_us.get("rondo"), "peers_us": self.peers_us, "ratio": self.ratio("rondo")}
        if "rondo_allocated" in RONDO[transport]:
            row |= {"rondo_allocated_us": self.rondo_us.get("rondo_allocated"), "ratio_allocated": self.ratio("rondo_allocated")}
        return row


class Samples:
    """The figures of all rounds of one size, over all starts of the libraries."""

    def __init__(self, size: int):
        self.bytes = size
        self.times: dict[str, list[float]] = defaultdict(list)
        self.ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))


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
            for name, time in turn.items():
                if time:
                    samples.times[name].append(time)
            for rondo in ours:
                if peer and turn[rondo.name] and turn[peer.name]:
                    samples.ratios[rondo.name][peer.name].append(turn[peer.name] / turn[rondo.name])


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
    times, ratios = samples.times, samples.ratios
    row = Row(samples.bytes)
    row.rondo_us = {rondo.name: median(times[rondo.name]) for rondo in ours if times[rondo.name]}
    row.peers_us = {peer.name: median(times[peer.name]) for peer in peers}
    if row.peers_us:
        row.best = min(row.peers_us, key=row.peers_us.get)
        if BEFORE["rondo"] in row.peers_us:
            row.best = BEFORE["rondo"]
        row.ratios = {rondo.name: ratios[rondo.name][BEFORE[rondo.name] if BEFORE[rondo.name] in row.peers_us else row.best] for rondo in ours}
    # A library with several algorithms is as fast as the best of them.
    for group in {peer.group.name for peer in peers} - set(row.peers_us):
        row.peers_us[group] = min(row.peers_us[peer.name] for peer in peers if peer.group.name == group)
    return row


def _clamp(value: float, limits: range) -> int:
    return max(limits[0], min(limits[-1], int(value)))
