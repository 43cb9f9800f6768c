# SPDX-License-Identifier: Apache-2.0
"""The measurement of one size: short turns, one library at a time, Rondo before every peer."""

from dataclasses import dataclass, field
from statistics import median

from group import Failure, Group

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
        """Checks that the sums are right and finds how many iterations fill the first turn."""
        for answer in self.group.command(f"check {self.algorithm} {size}"):
            if answer != "right":
                raise Failure(answer)
        self.iterations = PROBES
        self.turn(size, seconds)

    def turn(self, size: int, seconds: float) -> float:
        """The p50 in microseconds: for every iteration the slowest rank, then the median over the iterations."""
        warm_up = _clamp(self.iterations / 10, WARM_UPS)
        answers = self.group.command(f"turn {self.algorithm} {size} {warm_up} {self.iterations}")
        ranks = [[int(time) for time in answer.split()[1:]] for answer in answers]
        if any(len(times) != self.iterations for times in ranks):
            raise Failure("answers with a wrong number of times")
        p50 = median(map(max, zip(*ranks))) / 1e3
        self.iterations = _clamp(seconds * 1e6 / p50, ITERATIONS)
        return p50


@dataclass
class Row:
    bytes: int
    rondo_us: float | None = None
    peers_us: dict[str, float] = field(default_factory=dict)
    best: str | None = None
    ratios: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None

    def as_json(self, transport: str, ranks: int) -> dict:
        return {"operation": "all_reduce", "transport": transport, "ranks": ranks, "bytes": self.bytes,
                "rondo_us": self.rondo_us, "peers_us": self.peers_us, "ratio": self.ratio}


def measure(candidates: list[Candidate], size: int, rounds: int, seconds: float, missing: dict[str, str], progress) -> Row:
    """Takes libraries that fail out of `candidates`, stops them and enters the reason in `missing`."""

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

    rondo = next((candidate for candidate in candidates if candidate.group.name == "rondo"), None)
    peers = [candidate for candidate in candidates if candidate is not rondo]
    rondo_times: list[float] = []
    times: dict[str, list[float]] = {peer.name: [] for peer in peers}
    ratios: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        for peer in peers or [None]:
            progress(f"round {number + 1} of {rounds}, {peer.name if peer else 'no peer'}")
            rondo_time = rondo and attempt(rondo, lambda: rondo.turn(size, seconds))
            peer_time = peer and attempt(peer, lambda: peer.turn(size, seconds))
            if rondo_time:
                rondo_times.append(rondo_time)
            if peer_time:
                times[peer.name].append(peer_time)
            if rondo_time and peer_time:
                ratios[peer.name].append(peer_time / rondo_time)
    if rondo not in candidates:  # a library that fails on the way has no figure
        rondo_times, ratios = [], {peer.name: [] for peer in peers}
    return _row(size, rondo_times, [peer for peer in peers if peer in candidates], times, ratios)


def _row(size: int, rondo_times: list[float], peers: list[Candidate], times: dict[str, list[float]],
         ratios: dict[str, list[float]]) -> Row:
    row = Row(size, median(rondo_times) if rondo_times else None)
    row.peers_us = {peer.name: median(times[peer.name]) for peer in peers}
    if row.peers_us:
        row.best = min(row.peers_us, key=row.peers_us.get)
        row.ratios = ratios[row.best]
    # A library with several algorithms is as fast as the best of them.
    for group in {peer.group.name for peer in peers} - set(row.peers_us):
        row.peers_us[group] = min(row.peers_us[peer.name] for peer in peers if peer.group.name == group)
    return row


def _clamp(value: float, limits: range) -> int:
    return max(limits[0], min(limits[-1], int(value)))
