#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks in the shapes of OSU's benchmarks: Rondo beside Open MPI and MPICH, in
turns. docs/point-to-point.md explains the method."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from compare import bytes_of, list_of, peer_of, positive, ranks_of, transport_of, warn_when_busy
from compare_table import in_words, short
from launch import Job, Launch, Missing, has, launch_command

OPERATIONS = ("latency", "bandwidth", "bibandwidth", "rate")
PEERS = ("openmpi", "openmpi-nocma", "mpich")
RONDO = {"tcp": ("rondo",), "shm": ("rondo", "rondo_allocated")}
WHERE = {"tcp": "tcp over loopback", "shm": "shared memory"}
SECONDS_OF_A_START = 60
WARM_UP = 10  # iterations that are not counted, as in OSU's benchmarks: the first ones touch new pages

# The p50 of a message in microseconds, by operation and bytes.
Figures = dict[tuple[str, int], float]


def operation_of(text: str) -> str:
    if text not in OPERATIONS:
        raise argparse.ArgumentTypeError(f"unknown operation {text!r}: there are {', '.join(OPERATIONS)}")
    return text


def mpi_of(text: str) -> str:
    if peer_of(text) not in PEERS:
        raise argparse.ArgumentTypeError(f"{text} has no messages here: there are {', '.join(PEERS)}")
    return text


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare messages", description=__doc__)
    parser.add_argument("--operations", type=list_of(operation_of, "operations"), default=",".join(OPERATIONS), help="default %(default)s")
    parser.add_argument("--sizes", type=list_of(bytes_of, "sizes"), default="8,1K,64K,1M", help="bytes of a message; default %(default)s")
    parser.add_argument("--ranks", type=ranks_of, default="2", help="ranks of rate; the others have 2; default %(default)s")
    parser.add_argument("--turns", type=positive(int), default=5, help="starts of each library; default %(default)s")
    parser.add_argument("--round-trips", type=positive(int), default=300, metavar="N", help="of latency in a turn; default %(default)s")
    parser.add_argument("--windows", type=positive(int), default=30, metavar="N", help="of the others in a turn; default %(default)s")
    parser.add_argument("--window", type=positive(int), default=64, help="messages of a window; default %(default)s")
    parser.add_argument("--transport", type=list_of(transport_of, "transports"), default="shm,tcp", metavar="NAMES",
                        help="a table for each; default %(default)s")
    parser.add_argument("--peers", type=list_of(mpi_of, "peers"), default=",".join(PEERS), help="default %(default)s")
    parser.add_argument("--no-pin", action="store_true", help="do not bind rank r of every library to core r")
    parser.add_argument("--build", type=Path, default=Path("build"), metavar="FOLDER", help="where Rondo was built; default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")
    arguments = parser.parse_args()
    if arguments.ranks % 2:
        parser.error(f"--ranks {arguments.ranks}: every rank has a partner, so give an even number")
    return arguments


@dataclass
class Part:
    """Operations that one start of a library measures."""

    operations: list[str]
    ranks: int
    iterations: int


def parts_of(arguments: argparse.Namespace) -> list[Part]:
    windowed = [name for name in arguments.operations if name in ("bandwidth", "bibandwidth")]
    rate = [name for name in arguments.operations if name == "rate"]
    latency = [name for name in arguments.operations if name == "latency"]
    if arguments.ranks == 2:
        windowed, rate = windowed + rate, []
    parts = [Part(latency, 2, arguments.round_trips), Part(windowed, 2, arguments.windows), Part(rate, arguments.ranks, arguments.windows)]
    return [part for part in parts if part.operations]


def rondo(name: str, part: Part, job: Job, arguments: argparse.Namespace) -> Launch:
    command = [str(job.run), "bench", ",".join(part.operations), "--sizes", ",".join(map(str, arguments.sizes)), "-n", str(part.iterations),
               "-w", str(WARM_UP), "-c", "0", "--no-ceiling", "--json", "-", "-d", "u8"]
    if part.operations != ["latency"]:
        command += ["--window", str(arguments.window)]
    return launch_command("rondo", command + (["--allocate"] if name == "rondo_allocated" else []), job)


def mpi(name: str, part: Part, job: Job, arguments: argparse.Namespace) -> Launch:
    program = arguments.build.resolve() / "bench" / "messages" / f"messages_{name.partition('-')[0]}"
    if not program.exists():
        raise Missing(f"not installed ({program} was not built)")
    numbers = [",".join(map(str, arguments.sizes)), part.iterations, WARM_UP, arguments.window]
    return launch_command(name, [str(program), ",".join(part.operations), *map(str, numbers)], job)


def output_of(launch: Launch) -> str:
    with subprocess.Popen(launch.command, env=os.environ | launch.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as launcher:
        try:
            output, errors = launcher.communicate(timeout=SECONDS_OF_A_START)
        except subprocess.TimeoutExpired:
            # Every launcher ends its ranks on SIGTERM, and none can on SIGKILL.
            launcher.terminate()
            launcher.communicate()
            raise Missing(f"did not end within {SECONDS_OF_A_START} s") from None
    if launcher.returncode:
        raise Missing(f"ended with status {launcher.returncode}: {(errors.strip().splitlines() or ['no message'])[-1]}")
    return output


def run(name: str, transport: str, part: Part, arguments: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory(prefix="rondo-messages-") as folder:
        job = Job(transport, part.ranks, Path(folder), Path(folder), not arguments.no_pin, arguments.build.resolve() / "tools" / "rondo")
        launch = (rondo if name.startswith("rondo") else mpi)(name, part, job, arguments)
        text = output_of(launch)
    if name.startswith("rondo"):
        return {(row["operation"], row["bytes"]): row["p50_us"] for row in json.loads(text)["results"]}
    rows = [line.split() for line in text.splitlines()]
    return {(operation, int(size)): float(time) for operation, size, time in rows}


def measure(transport: str, arguments: argparse.Namespace, missing: dict[str, str]) -> dict[str, list[Figures]]:
    """The figures of each turn, by library. Every other turn has the reverse order, so that no
    library always follows the same one."""
    names = [*RONDO[transport], *(peer for peer in arguments.peers if has(peer, transport))]
    turns: dict[str, list[Figures]] = {name: [] for name in names}
    for turn in range(arguments.turns):
        for part in parts_of(arguments):
            for name in names if turn % 2 == 0 else names[::-1]:
                if name in missing:
                    continue
                try:
                    figures = run(name, transport, part, arguments)
                except Missing as reason:
                    missing[name] = str(reason)
                    continue
                if len(turns[name]) <= turn:
                    turns[name].append({})
                turns[name][turn].update(figures)
    return {name: turns[name] for name in names if name not in missing}


def row_of(operation: str, size: int, turns: dict[str, list[Figures]]) -> dict:
    times = {name: [figures[operation, size] for figures in of_turns] for name, of_turns in turns.items()}
    medians = {name: statistics.median(of_turns) for name, of_turns in times.items()}
    peers = [name for name in medians if not name.startswith("rondo")]
    row = {"operation": operation, "bytes": size, "us": medians, "turns_us": times}
    if not peers or "rondo" not in medians:
        return row | {"best": None, "ratio": None}
    best = min(peers, key=medians.__getitem__)
    for name in [name for name in medians if name not in peers]:
        ratios = [peer / own for peer, own in zip(times[best], times[name])]
        row["ratio" + name.removeprefix("rondo")] = statistics.median(ratios)
        row["ratios" + name.removeprefix("rondo")] = ratios
    return row | {"best": best}


def print_rows(transport: str, operation: str, ranks: int, rows: list[dict], arguments: argparse.Namespace) -> None:
    names = list(rows[0]["us"])
    what = "half of a round trip" if operation == "latency" else f"a message, window of {arguments.window}"
    print(f"\n{operation}, {WHERE[transport]}, {ranks} ranks: us of {what}; medians of {arguments.turns} turns")
    print(f"{'size':>8}" + "".join(f"{name.replace('rondo_', ''):>14}" for name in names) + f"  {'best peer':<14}{'ratio':>6}  (least-most)")
    for row in rows:
        times = "".join(f"{short(row['us'][name]):>14}" for name in names)
        ratio = "" if row["ratio"] is None else f"{row['ratio']:>6.2f}  ({min(row['ratios']):.2f}-{max(row['ratios']):.2f})"
        if "ratio_allocated" in row:
            ratio += f"  allocated {row['ratio_allocated']:.2f}"
        print(f"{in_words(row['bytes']):>8}{times}  {row['best'] or '-':<14}{ratio}", flush=True)


def main() -> int:
    arguments = parse_arguments()
    warn_when_busy()
    every: list[dict] = []
    for transport in arguments.transport:
        missing: dict[str, str] = {}
        turns = measure(transport, arguments, missing)
        for operation in arguments.operations if turns else []:
            ranks = arguments.ranks if operation == "rate" else 2
            rows = [row_of(operation, size, turns) for size in arguments.sizes]
            print_rows(transport, operation, ranks, rows, arguments)
            every += [{"transport": transport, "ranks": ranks, **row} for row in rows]
        for name, reason in missing.items():
            print(f"{name}: {reason}")
    if arguments.json:
        told = {name: getattr(arguments, name) for name in ("turns", "round_trips", "windows", "window")}
        arguments.json.write_text(json.dumps({**told, "pinned": not arguments.no_pin, "rows": every}, indent=1) + "\n")
    return 0 if every and all(row["ratio"] is not None for row in every) else 1


if __name__ == "__main__":
    sys.exit(main())
