#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an all-reduce (f32 sum) of Rondo and of other libraries side by side. docs/compare.md
explains the method."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.dont_write_bytecode = True

from compare_table import SUFFIXES, Table, has_ceiling, in_words
from group import Failure, Group
from launch import BEFORE, CEILING, PEERS, RONDO, TRANSPORTS, Job, Missing, has, launch_of
from rounds import Candidate, Row, Samples, measure, row_of
from strangers import Ended, strangers


def bytes_of(text: str) -> int:
    factor = SUFFIXES.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdigit() or int(digits) * factor % 4 or not int(digits):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, a multiple of 4, as 8, 16K or 4M")
    return int(digits) * factor


def list_of(convert, what: str):
    def parse(text: str) -> list:
        return [convert(item) for item in text.split(",")]

    parse.__name__ = f"list of {what}"
    return parse


def ranks_of(text: str) -> int:
    if not text.isdigit() or not 2 <= int(text) <= 512:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks: give 2 to 512")
    return int(text)


def count_of(text: str) -> int:
    if not text.isdigit() or int(text) > 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: give 0 to 1024")
    return int(text)


def peer_of(text: str) -> str:
    if text not in PEERS:
        raise argparse.ArgumentTypeError(f"unknown peer {text!r}: there are {', '.join(PEERS)}")
    return text


def transport_of(text: str) -> str:
    if text not in TRANSPORTS:
        raise argparse.ArgumentTypeError(f"unknown transport {text!r}: there are {', '.join(TRANSPORTS)}")
    return text


def positive(convert):
    def parse(text: str):
        value = convert(text)
        if not value > 0:
            raise ValueError
        return value

    parse.__name__ = "positive number"
    return parse


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("--ranks", type=list_of(ranks_of, "ranks"), default="2,4", help="default %(default)s")
    parser.add_argument("--sizes", type=list_of(bytes_of, "sizes"), default="8,1K,16K,256K,1M,4M,16M,64M",
                        help="bytes to reduce; default %(default)s")
    parser.add_argument("--rounds", type=positive(int), default=5, help="rounds per size; default %(default)s")
    parser.add_argument("--starts", type=positive(int), default=1,
                        help="how often all libraries are started, with --rounds rounds each time; default %(default)s")
    parser.add_argument("--seconds-per-turn", type=positive(float), default=0.1, metavar="S", help="default %(default)s")
    parser.add_argument("--timeout", type=positive(float), default=20.0, metavar="S",
                        help="a library that takes longer for one turn is left out; default %(default)s")
    parser.add_argument("--transport", type=list_of(transport_of, "transports"), metavar="NAMES",
                        help="tcp (over the loopback interface), shm (shared memory), or both: a table for each; default both")
    parser.add_argument("--strangers", type=count_of, default=0, metavar="K",
                        help="busy processes beside every library; default %(default)s")
    parser.add_argument("--pin", action="store_true", help="bind rank r of every library to core r, modulo the number of cores")
    parser.add_argument("--fresh", action="store_true", help="write each input anew before every iteration, outside the timed part")
    parser.add_argument("--peers", type=list_of(peer_of, "peers"), help=f"default {','.join(PEERS)}")
    parser.add_argument("--build", type=Path, default=Path("build"), metavar="FOLDER",
                        help="where Rondo was built; default %(default)s")
    parser.add_argument("--before", type=Path, metavar="FOLDER",
                        help="an earlier build of Rondo, which becomes a peer; the ratios are to it; without --peers it is the only one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")
    arguments = parser.parse_args()
    if arguments.before and not (arguments.before / "bench" / "peers" / "peer_rondo").exists():
        parser.error(f"--before {arguments.before} has no bench/peers/peer_rondo: give the folder of a build with its benches")
    arguments.peers = arguments.peers or ([] if arguments.before else list(PEERS))
    possible = [transport for transport in TRANSPORTS if arguments.before or any(has(peer, transport) for peer in arguments.peers)]
    arguments.transport = arguments.transport or possible
    for transport in set(arguments.transport) - set(possible):
        parser.error(f"--peers {','.join(arguments.peers)} has nothing to compare with over {transport}")
    return arguments


@contextmanager
def started(names: list[str], transport: str, ranks: int, arguments: argparse.Namespace, missing: dict[str, str]):
    """Yields the groups that have started, by name. `missing` gets the reasons for the others.
    At the end every process is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="rondo-compare-"))
    groups: dict[str, Group] = {}
    try:
        for name in names:
            (folder / name).mkdir()
            group = Group(name, ranks, folder / name, arguments.timeout)
            try:
                build = arguments.before if name in BEFORE.values() else arguments.build
                # This build's `rondo run` starts both builds, so they are placed alike.
                run = arguments.build.resolve() / "tools" / "rondo"
                launch = launch_of(name, build.resolve(), Job(transport, ranks, group.control, folder / name, arguments.pin, run))
            except Missing as reason:
                missing[name] = str(reason)
                continue
            groups[name] = group
            group.start([launch])
        for name, group in list(groups.items()):
            try:
                group.wait_until_ready()
            except Failure as reason:
                missing[name] = str(reason)
                group.stop()
                del groups[name]
        yield groups
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Nothing may interrupt the clean-up, whose time is bounded.
            signal.signal(number, signal.SIG_IGN)
        for group in groups.values():
            group.stop()
        shutil.rmtree(folder, ignore_errors=True)
        end_on_signals()


def end_on_signals() -> None:
    def end(number, _frame):
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def warn_when_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        print(f"compare: other programs are busy here (load {load:.1f} on {cores} cores); they slow down a library that yields its "
              "core more than one that spins, so trust no ratio of this run", file=sys.stderr)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def title(transport: str, ranks: int, arguments: argparse.Namespace) -> str:
    where = {"tcp": "tcp over loopback", "shm": "shared memory"}[transport]
    told = [f"all_reduce, f32 sum, {where}, {ranks} ranks"]
    if arguments.strangers:
        told.append(f"{arguments.strangers} stranger{'s' if arguments.strangers > 1 else ''}")
    if arguments.pin:
        told.append("ranks bound to cores")
    if arguments.fresh:
        told.append("inputs written anew")
    return f"{', '.join(told)}: p50 and mean in us, medians of {arguments.starts * arguments.rounds} rounds"


def compare(transport: str, ranks: int, arguments: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    missing: dict[str, str] = {}
    peers = [BEFORE[name] for name in RONDO[transport] if arguments.before]
    peers += [name for name in arguments.peers if has(name, transport)]
    table = Table(transport, peers)
    table.print_header(title(transport, ranks, arguments))
    samples = [Samples(size) for size in arguments.sizes]
    names = [*RONDO[transport], *peers, *([CEILING] if has_ceiling(transport, peers) else [])]
    for start in range(arguments.starts):
        present = [name for name in names if name not in missing]
        # The library that starts first may get other cores than the last, so every other start is
        # in reverse order.
        order = present if start % 2 == 0 else present[::-1]
        with started(order, transport, ranks, arguments, missing) as groups:
            command = "fresh" if arguments.fresh else "turn"
            candidates = [Candidate(groups[name], algorithm, command) for name in names if name in groups
                          for algorithm in groups[name].algorithms]
            for of_size in samples:
                where = f"{transport}, {ranks} ranks, start {start + 1} of {arguments.starts}, {in_words(of_size.bytes)}"
                measure(candidates, of_size, arguments.rounds, arguments.seconds_per_turn, missing,
                        lambda text, where=where: progress(f"{where}: {text}"))
                if start + 1 == arguments.starts:
                    progress("")
                    rows.append(row_of(of_size, candidates))
                    table.print_row(rows[-1])
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    return rows


def main() -> int:
    arguments = parse_arguments()
    end_on_signals()
    warn_when_busy()
    rows: list[dict] = []
    told = {name: getattr(arguments, name) for name in ("strangers", "pin", "fresh")}
    with strangers(arguments.strangers) as beside:
        for transport in arguments.transport:
            for ranks in arguments.ranks:
                rows += [row.as_json(transport, ranks) | told for row in compare(transport, ranks, arguments)]
                try:
                    beside.check()
                except Ended as reason:
                    sys.exit(f"compare: {reason}, so the last table was measured beside fewer than --strangers says: run it again")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0 if all(row[name] is not None for row in rows for name in ("ratio", "ratio_allocated") if name in row) else 1


if __name__ == "__main__":
    sys.exit(main())
