# SPDX-License-Identifier: Apache-2.0
"""Times small urgent all-reduces between hosts, on idle links and beside large ones in the bulk
lane. docs/hosts.md explains the method."""

import argparse
import json
from pathlib import Path
from statistics import median, quantiles

from compare import bytes_of, in_words, list_of, positive, progress, warn_when_busy
from jobs import Jobs, Variant
from namespaces import Network
from ranks import by_host

WARM_UP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=positive(int), default=4, help="one rank on each; default %(default)s")
    parser.add_argument("--rate", default="1gbit", help="of every link; default %(default)s")
    parser.add_argument("--inner", default="", metavar="QDISC", help="a qdisc inside the tbf of every link, as fq_codel, prio or fq; default: the fifo of tbf")
    parser.add_argument("--bytes", type=bytes_of, default="4K", help="of an urgent operation (f64 sum); default %(default)s")
    parser.add_argument("--bulk", type=list_of(bytes_of, "sizes"), default="25M", help="of the operations beside it; default %(default)s")
    parser.add_argument("--rounds", type=positive(int), default=5, help="default %(default)s")
    parser.add_argument("--iterations", type=positive(int), default=200, help="in a turn; default %(default)s")
    parser.add_argument("--pause", type=int, default=2000, metavar="US", help="before each urgent operation; default %(default)s")
    parser.add_argument("--timeout", type=positive(float), default=60.0, metavar="S", help="for one turn; default %(default)s")
    parser.add_argument("--rondo", type=Variant.parse, action="append", metavar="[NAME:]VARIABLE=VALUE,...",
                        help="Rondo with these environment variables; may be given several times")
    parser.add_argument("--build", type=Path, action="append", metavar="FOLDER", help="may be given several times, to compare builds; default build")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")


def run(network: Network, arguments: argparse.Namespace) -> int:
    warn_when_busy()
    variants = arguments.rondo or [Variant("rondo", {})]
    builds = arguments.build or [Path("build")]
    placement = by_host(arguments.hosts, 1)
    print(f"# urgent all_reduce of {in_words(arguments.bytes)}, f64 sum, {arguments.hosts} hosts with one rank each, links of {arguments.rate}"
          f"{', ' + arguments.inner + ' inside tbf' if arguments.inner else ''}: medians of {arguments.rounds} rounds of {arguments.iterations}")
    print("# p50, p99: of the slowest rank's time, in us; from last call: p50 from the last rank's call to the last rank's end;")
    print("# ratio: to idle in the same round (least - most); bulk: bus bandwidth of the large operations, in MB/s")
    print(f"{'':<24} {'beside':>10} {'p50':>8} {'p99':>8} {'from last call':>14} {'ratio p50':>9}  {'(least - most)':<16} {'bulk':>6}", flush=True)
    with Jobs(network, placement, variants, False, arguments, program="peer_urgent", builds=builds) as jobs:
        turns: dict[tuple[str, int], list[Turn]] = {}
        for number in range(arguments.rounds):
            for candidate in jobs.candidates:
                for bulk in [0, *arguments.bulk]:
                    progress(f"round {number + 1} of {arguments.rounds}, {candidate.name} beside {in_words(bulk)}")
                    turns.setdefault((candidate.name, bulk), []).append(Turn(candidate.group, arguments, bulk))
        progress("")
        rows = [row(name, bulk, some, turns[name, 0], arguments.hosts) for (name, bulk), some in turns.items()]
        for one in rows:
            print_row(one)
        for name, reason in jobs.missing.items():
            print(f"{name}: {reason}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0 if rows and not jobs.missing else 1


class Turn:
    """One turn: microseconds of each operation, and bytes of bulk buffers that were reduced per
    second."""

    def __init__(self, group, arguments: argparse.Namespace, bulk: int):
        answers = [answer.split() for answer in group.command(f"turn {arguments.bytes} {WARM_UP} {arguments.iterations} {arguments.pause} {bulk}")]
        self.bulk = min(float(words[1]) for words in answers)
        ranks = [[int(word) for word in words[2:]] for words in answers]
        starts, ends = zip(*(rank[0::2] for rank in ranks)), zip(*(rank[1::2] for rank in ranks))
        pairs = list(zip(starts, ends))
        self.times = [max(end - start for start, end in zip(*pair)) / 1e3 for pair in pairs]
        self.from_last = [(max(ends) - max(starts)) / 1e3 for starts, ends in pairs]


def row(name: str, bulk: int, turns: list[Turn], idle: list[Turn], ranks: int) -> dict:
    ratios = [median(turn.times) / median(before.times) for turn, before in zip(turns, idle)]
    return {"name": name, "bulk_bytes": bulk, "p50_us": median(median(turn.times) for turn in turns),
            "p99_us": median(quantiles(turn.times, n=100)[98] for turn in turns),
            "from_last_us": median(median(turn.from_last) for turn in turns), "ratios": ratios,
            "bulk": median(turn.bulk for turn in turns) * 2 * (ranks - 1) / ranks / 1e6}


def print_row(row: dict) -> None:
    beside = in_words(row["bulk_bytes"]) if row["bulk_bytes"] else "idle"
    ratios = row["ratios"]
    end = f"{median(ratios):9.2f}  {f'({min(ratios):.2f} - {max(ratios):.2f})':<16} {row['bulk']:6.1f}" if row["bulk_bytes"] else ""
    print(f"{row['name']:<24} {beside:>10} {row['p50_us']:8.0f} {row['p99_us']:8.0f} {row['from_last_us']:14.0f} {end}", flush=True)
