# SPDX-License-Identifier: Apache-2.0
"""Measures one size in short turns: one job runs at a time, or iperf3."""

import argparse
import json
import subprocess
from dataclasses import dataclass, field
from statistics import median

from compare import in_words, progress
from group import Failure
from jobs import Jobs
from namespaces import Host, Network
from rounds import Candidate, warm_ups

IPERF_SECONDS = 1


@dataclass
class Series:
    """The figures of one candidate, one for each round."""

    group: str
    p50_us: list[float] = field(default_factory=list)
    # Bytes that the busiest host sends for one operation and the barrier before it.
    link_bytes: list[float] = field(default_factory=list)


@dataclass
class Figures:
    bytes: int
    limit: float | None  # bytes per second that iperf3 reaches on all links of a host together
    series: dict[str, Series]  # by name, in the order of the candidates


def iperf3(network: Network) -> float:
    """Returns the bytes per second from host 0 to host 1, on all their links at once."""
    servers, clients = [], []
    try:
        for link in range(len(network.rates)):
            address = network.hosts[1].address(link)
            servers.append(network.hosts[1].start(["iperf3", "--server", "--one-off", "--forceflush", "--bind", address],
                                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            said = ""
            while "listening" not in said:
                said = servers[-1].stdout.readline()
                if not said:
                    raise Failure("iperf3 ended instead of listening")
            # --omit leaves out the first second, in which the link's token bucket lets more pass
            # than its rate.
            clients.append(network.hosts[0].start(["iperf3", "--client", address, "--time", IPERF_SECONDS, "--omit", 1, "--json"],
                                                  stdout=subprocess.PIPE, text=True))
        answers = [json.loads(client.communicate(timeout=30)[0]) for client in clients]
        if errors := [answer["error"] for answer in answers if "error" in answer]:
            raise Failure(f"iperf3: {errors[0]}")
        return sum(answer["end"]["sum_received"]["bits_per_second"] for answer in answers) / 8
    finally:
        for process in clients + servers:
            process.kill()
            process.communicate()


def measure(network: Network, jobs: Jobs, size: int, arguments: argparse.Namespace) -> Figures:
    series = {candidate.name: Series(candidate.group.name) for candidate in jobs.candidates}
    limits = []

    def attempt(candidate: Candidate, action):
        if candidate not in jobs.candidates:
            return None
        try:
            return action(candidate)
        except Failure as reason:
            jobs.drop(candidate, f"{reason} (at {size} bytes, {candidate.algorithm} algorithm)")
            return None

    for candidate in list(jobs.candidates):
        progress(f"{in_words(size)}: checking {candidate.name}")
        attempt(candidate, lambda one: one.get_ready(size, arguments.seconds_per_turn))
    for number in range(arguments.rounds):
        if not arguments.no_iperf3:
            progress(f"{in_words(size)}: round {number + 1} of {arguments.rounds}, iperf3")
            limits.append(iperf3(network))
        for candidate in list(jobs.candidates):
            progress(f"{in_words(size)}: round {number + 1} of {arguments.rounds}, {candidate.name}")
            if turn := attempt(candidate, lambda one: counted_turn(network, one, size, arguments.seconds_per_turn)):
                series[candidate.name].p50_us.append(turn[0])
                series[candidate.name].link_bytes.append(turn[1])
    progress("")
    running = {candidate.name for candidate in jobs.candidates}
    return Figures(size, median(limits) if limits else None, {name: one for name, one in series.items() if name in running})


def counted_turn(network: Network, candidate: Candidate, size: int, seconds: float) -> tuple[float, float]:
    """Returns the p50 in microseconds, and the bytes that the busiest host sends for one
    operation and the barrier before it."""
    operations = candidate.iterations + warm_ups(candidate.iterations)
    before = [sent(host, network) for host in network.hosts]
    p50 = candidate.turn(size, seconds).p50
    return p50, max(sent(host, network) - was for host, was in zip(network.hosts, before)) / operations


def sent(host: Host, network: Network) -> int:
    return sum(host.counters(link)[1] for link in range(len(network.rates)))
