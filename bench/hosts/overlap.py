# SPDX-License-Identifier: Apache-2.0
"""Measures training steps with a synthetic backward pass between hosts: Rondo's gradient buckets
and Gloo with buckets, in turns. docs/hosts.md explains the method."""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from compare import bytes_of, in_words, list_of, positive, progress, warn_when_busy
from group import Failure
from jobs import Jobs, Variant
from namespaces import Network
from ranks import by_host
from rounds import Candidate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=positive(int), default=4, help="one rank on each; default %(default)s")
    parser.add_argument("--rate", default="1gbit", help="of every link; default %(default)s")
    parser.add_argument("--inner", default="", help=argparse.SUPPRESS)
    parser.add_argument("--buckets", type=list_of(bytes_of, "sizes"), default="1M,2M,4M,8M,25M", help="bucket sizes of Rondo; default %(default)s")
    parser.add_argument("--gloo-buckets", type=list_of(bytes_of, "sizes"), default="25M", help="bucket sizes of Gloo; default %(default)s")
    parser.add_argument("--gloo-algorithm", help="default: the one that is fastest without computation")
    parser.add_argument("--no-gloo", action="store_true", help="leave Gloo out")
    parser.add_argument("--rounds", type=positive(int), default=3, help="default %(default)s")
    parser.add_argument("--steps", type=positive(int), default=2, help="in a turn; default %(default)s")
    parser.add_argument("--timeout", type=positive(float), default=120.0, metavar="S", help="for one turn; default %(default)s")
    parser.add_argument("--rondo", type=Variant.parse, action="append", metavar="[NAME:]VARIABLE=VALUE,...",
                        help="Rondo with these environment variables; may be given several times")
    parser.add_argument("--build", type=Path, default=Path("build"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")


@dataclass
class Series:
    """One library with one bucket size. The lists hold seconds, one entry for each round."""

    name: str
    candidate: Candidate
    bucket: int
    alone: list[float] = field(default_factory=list)  # a step without computation
    computed: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)

    def turn(self, compute: float, steps: int) -> float:
        answers = self.candidate.group.command(f"turn {self.candidate.algorithm} {self.bucket} {round(compute * 1e9)} {steps}")
        ranks = [[int(time) for time in answer.split()[1:]] for answer in answers]
        return median(map(max, zip(*ranks))) / 1e9

    @property
    def exposed(self) -> float:
        """The part of the communication that the computation did not hide: the median over the
        rounds."""
        return median((step - compute) / alone for step, compute, alone in zip(self.step, self.computed, self.alone))


def run(network: Network, arguments: argparse.Namespace) -> int:
    warn_when_busy()
    variants = arguments.rondo or [Variant("rondo", {})]
    with Jobs(network, by_host(arguments.hosts, 1), variants, not arguments.no_gloo, arguments, program="overlap_rondo",
              gloo_program="overlap_gloo") as jobs:
        try:
            all_series = choose(jobs, arguments)
            for number in range(arguments.rounds):
                one_round(all_series, arguments, f"round {number + 1} of {arguments.rounds}")
        except Failure as reason:
            print(f"failed: {reason}")
            return 1
        finally:
            progress("")
        rows = table(all_series, arguments)
        for name, reason in jobs.missing.items():
            print(f"{name}: {reason}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0 if not jobs.missing else 1


def choose(jobs: Jobs, arguments: argparse.Namespace) -> list[Series]:
    """Returns Gloo with the algorithm that is fastest without computation, and Rondo, each with
    all its bucket sizes."""
    ours = [Series(one.name, one, bucket) for one in jobs.candidates if one.group.name != "gloo" for bucket in arguments.buckets]
    gloo = [one for one in jobs.candidates if one.group.name == "gloo" and arguments.gloo_algorithm in (None, one.algorithm)]
    times = {}
    for one in gloo if len(gloo) > 1 else []:
        progress(f"trying {one.name}")
        times[one.name] = Series(one.name, one, arguments.gloo_buckets[0]).turn(0, arguments.steps)
    if times:
        print("# Gloo, a step without computation, ms: " + ", ".join(f"{name.removeprefix('gloo_')} {time * 1e3:.0f}" for name, time in times.items()))
    gloo.sort(key=lambda one: times.get(one.name, 0))
    return [Series(one.name, one, bucket) for one in gloo[:1] for bucket in arguments.gloo_buckets] + ours


def one_round(all_series: list[Series], arguments: argparse.Namespace, title: str) -> None:
    for series in all_series:
        progress(f"{title}, {series.name} {in_words(series.bucket)} without computation")
        series.alone.append(series.turn(0, arguments.steps))
    # All get the same computation time: that of the fastest communication in this round.
    compute = min(series.alone[-1] for series in all_series)
    for series in all_series:
        progress(f"{title}, {series.name} {in_words(series.bucket)}")
        series.computed.append(compute)
        series.step.append(series.turn(compute, arguments.steps))


def table(all_series: list[Series], arguments: argparse.Namespace) -> list[dict]:
    first = all_series[0]
    print(f"# backward of 100 tensors, 25 M f32 elements, {arguments.hosts} hosts with one rank each, links of {arguments.rate}: "
          f"medians of {arguments.rounds} rounds of {arguments.steps} steps")
    print("# alone: a step without computation; computed: of every step, what the fastest takes alone; exposed: (step - computed) / alone;")
    print(f"# ratio: steps/s of this / steps/s of the first, median over the rounds (least - most)")
    print(f"{'':<20} {'bucket':>8} {'alone ms':>9} {'computed':>9} {'step ms':>9} {'steps/s':>8} {'exposed %':>9} {'ratio':>6}  (least - most)")
    rows = []
    for series in all_series:
        ratios = [theirs / its for theirs, its in zip(first.step, series.step)]
        rows.append({"name": series.name, "bucket_bytes": series.bucket, "alone_s": median(series.alone), "computed_s": median(series.computed),
                     "step_s": median(series.step), "exposed": series.exposed, "ratios": ratios})
        print(f"{series.name:<20} {in_words(series.bucket):>8} {median(series.alone) * 1e3:9.0f} {median(series.computed) * 1e3:9.0f} "
              f"{median(series.step) * 1e3:9.0f} {1 / median(series.step):8.3f} {series.exposed * 100:9.1f} {median(ratios):6.2f}  "
              f"({min(ratios):.2f} - {max(ratios):.2f})", flush=True)
    return rows
