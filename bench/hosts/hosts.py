#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an all-reduce (f32 sum) of Rondo between hosts that are network namespaces of this machine,
and compares it with iperf3 and Gloo on the same links. `./dev hosts urgent` measures small urgent
operations beside large ones. `./dev hosts overlap` measures training steps whose communication
overlaps computation. docs/hosts.md explains the methods."""

import argparse
import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent / "peers"), str(FOLDER.parents[1] / "tests" / "hosts")]

import overlap
import urgent
from compare import bytes_of, end_on_signals, list_of, positive, warn_when_busy
from jobs import Jobs, Variant
from namespaces import SKIPPED, Network, Unable, become_able
from ranks import by_host, in_turn
from simulated import simulated_us
from table import Table
from turns import Figures, measure

ORDERS = {"host": by_host, "turn": in_turn}
OTHERS = {"urgent": urgent, "overlap": overlap}


def parse_arguments() -> argparse.Namespace:
    if sys.argv[1:2] in ([name] for name in OTHERS):
        module = OTHERS[sys.argv[1]]
        parser = argparse.ArgumentParser(prog=f"./dev hosts {sys.argv[1]}", description=module.__doc__)
        module.add_arguments(parser)
        arguments = parser.parse_args(sys.argv[2:])
        arguments.rates, arguments.run = [arguments.rate], module.run
        return arguments
    parser = argparse.ArgumentParser(prog="./dev hosts", description=__doc__)
    parser.add_argument("--hosts", type=positive(int), default=4, help="default %(default)s")
    parser.add_argument("--ranks-per-host", type=positive(int), default=1, metavar="N", help="default %(default)s")
    parser.add_argument("--order", choices=ORDERS, default="host", help="ranks are numbered host by host, or in turn; default %(default)s")
    parser.add_argument("--rates", type=list_of(str, "rates"), default="1gbit", metavar="RATE,...",
                        help="one link of each host for every rate, as 1gbit,500mbit; default %(default)s")
    parser.add_argument("--sizes", type=list_of(bytes_of, "sizes"), default="1K,64K,256K,1M,4M,16M", help="default %(default)s")
    parser.add_argument("--rounds", type=positive(int), default=5, help="rounds for each size; default %(default)s")
    parser.add_argument("--seconds-per-turn", type=positive(float), default=0.5, metavar="S", help="default %(default)s")
    parser.add_argument("--timeout", type=positive(float), default=30.0, metavar="S", help="for one turn; default %(default)s")
    parser.add_argument("--rondo", type=Variant.parse, action="append", metavar="[NAME:]VARIABLE=VALUE,...",
                        help="Rondo with these environment variables; may be given several times; the ratios are to the first; "
                             "default: Rondo without settings")
    parser.add_argument("--simulate", action="store_true",
                        help="also print what rondo plan --simulate predicts for each Rondo that sets RONDO_ALGORITHM, with links of iperf3's rate")
    parser.add_argument("--no-gloo", action="store_true", help="leave Gloo out")
    parser.add_argument("--no-iperf3", action="store_true", help="leave iperf3 out")
    parser.add_argument("--build", type=Path, default=Path("build"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")
    parser.set_defaults(run=run, inner="")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    end_on_signals()
    try:
        become_able()
        with Network(arguments.hosts, arguments.rates, inner=arguments.inner) as network:
            return arguments.run(network, arguments)
    except Unable as reason:
        print(f"no hosts here: {reason}")
        return SKIPPED


def run(network: Network, arguments: argparse.Namespace) -> int:
    warn_when_busy()
    placement = ORDERS[arguments.order](arguments.hosts, arguments.ranks_per_host)
    variants = arguments.rondo or [Variant("rondo", {})]
    table = Table(network.rates, placement, arguments.rounds)
    with Jobs(network, placement, variants, not arguments.no_gloo, arguments) as jobs:
        table.print_header([candidate.name for candidate in jobs.candidates])
        for size in arguments.sizes:
            figures = measure(network, jobs, size, arguments)
            table.add(figures, simulate(variants, figures, arguments))
        table.print_end(jobs.missing)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": table.rows}, indent=1) + "\n")
    return 0 if jobs.candidates and not any(variant.name in jobs.missing for variant in variants) else 1


def simulate(variants: list[Variant], figures: Figures, arguments: argparse.Namespace) -> dict[str, float]:
    """Returns the predicted microseconds by name."""
    if not arguments.simulate or figures.limit is None:
        return {}
    times = {variant.name: simulated_us(arguments.build.resolve(), variant, arguments.hosts, arguments.ranks_per_host, arguments.order,
                                        os.cpu_count(), figures.bytes, figures.limit) for variant in variants}
    return {name: time for name, time in times.items() if time is not None}


if __name__ == "__main__":
    sys.exit(main())
