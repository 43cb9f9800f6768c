# SPDX-License-Identifier: Apache-2.0
"""Rondo and perftest on Soft-RoCE in one guest, in turns: ./dev rdma compare

    compare.py [--build FOLDER] [--rounds N] [--json FILE]

Each round measures every figure once; printed figures are medians over the rounds, and ratios are
ratios of medians. Above 1 is better for Rondo, except in the last ratio. All ranks share one device,
whose packets take the loopback, as those of perftest do.
"""

import argparse
import dataclasses
import json
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "vm"))
from guest import Guest, GuestError  # noqa: E402
from image import Unable, build  # noqa: E402

SKIPPED = 77
DEVICE = "export RONDO_RDMA_DEVICES=rxe0; "


def table_row(output: str) -> list[str]:
    """The last line that begins with two numbers."""
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    if not rows:
        raise GuestError(f"there are no figures in: {output}")
    return rows[-1]


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    script: str
    column: int
    scale: float = 1.0  # to the unit of the name

    def measure(self, guest: Guest) -> float:
        # perftest prints inf or 0 where the machine is too busy to measure its clock.
        for _ in range(5):
            value = float(table_row(guest.check(self.script, 120))[self.column]) * self.scale
            if 0 < value < math.inf:
                return value
        raise GuestError(f"{self.name}: no usable figure in 5 attempts (0 or inf); the machine may be too busy")


def perftest(name: str, command: str, column: int, scale: float = 1.0) -> Figure:
    command += " -x 1 -d rxe0"
    return Figure(name, f"{command} >/dev/null & listening 18515; {command} 10.78.0.1; status=$?; wait; exit $status", column, scale)


def one_way(name: str, size: str, count: int, window: int, column: int, *, flags: str = "", transport: str = "rdma") -> Figure:
    bench = f"rondo bench sendrecv --one-way --ranks 2 --transport {transport} -b {size} -e {size} -n {count} -w 5 --window {window} --no-ceiling -c 0"
    return Figure(name, f"{DEVICE}{bench} {flags}", column, 1000 if column == STREAM else 1)


def ring(name: str, ranks: int, transport: str, flags: str = "") -> Figure:
    bench = f"rondo bench all_reduce --ranks {ranks} --transport {transport} --algorithm ring -b 16M -e 16M -n 3 -w 1 --no-ceiling -c 0"
    return Figure(name, f"{DEVICE}{bench} {flags}", IN_PLACE, 1e-3)


# Columns of `rondo bench`: p50 of the ping-pong, the stream's GB/s, p50 in place.
PING_PONG, STREAM, IN_PLACE = 13, 8, 13
MIB = 1.048576  # perftest counts MiB
FIGURES = [
    perftest("ib_write_lat 8 B, us", "ib_write_lat -s 8 -n 1000", 4),
    one_way("rondo 8 B, us", "8", 300, 1, PING_PONG),
    perftest("ib_write_bw 64 KiB, MB/s", "ib_write_bw -s 65536 -n 400", 3, MIB),
    one_way("rondo 64 KiB slots, MB/s", "64K", 10, 64, STREAM),
    perftest("ib_write_bw 1 MiB, MB/s", "ib_write_bw -s 1048576 -n 40", 3, MIB),
    one_way("rondo 1 MiB slots, MB/s", "1M", 5, 16, STREAM),
    one_way("rondo 1 MiB grants, MB/s", "1M", 5, 16, STREAM, flags="--allocate"),
    one_way("rondo 1 MiB tcp, MB/s", "1M", 5, 16, STREAM, transport="tcp"),
    perftest("ib_write_bw -b 64 KiB, MB/s both ways", "ib_write_bw -b -s 65536 -n 400", 3, MIB),
    ring("ring 16 MiB, 2 ranks, ms", 2, "rdma"),
    ring("ring 16 MiB allocated, 2 ranks, ms", 2, "rdma", "--allocate"),
    ring("ring 16 MiB, 4 ranks, ms", 4, "rdma"),
    ring("ring 16 MiB allocated, 4 ranks, ms", 4, "rdma", "--allocate"),
    ring("tcp ring 16 MiB, 2 ranks, ms", 2, "tcp"),
    ring("tcp ring 16 MiB, 4 ranks, ms", 4, "tcp"),
]


def ratios(figures: dict[str, float]) -> dict[str, float]:
    """What the ring could reach: each rank sends 2 (n - 1) / n of the buffer while as much comes, so
    the buffers of all ranks share what the device moves both ways."""
    def allowed(ranks: int) -> float:
        return ranks * 2 * (ranks - 1) / ranks * 16.777216 / figures["ib_write_bw -b 64 KiB, MB/s both ways"] * 1000

    def over(better: str, worse: str) -> float:
        return figures[better] / figures[worse]

    return {
        "8 B latency: ib_write_lat / rondo": over("ib_write_lat 8 B, us", "rondo 8 B, us"),
        "64 KiB slots / ib_write_bw": over("rondo 64 KiB slots, MB/s", "ib_write_bw 64 KiB, MB/s"),
        "1 MiB slots / ib_write_bw": over("rondo 1 MiB slots, MB/s", "ib_write_bw 1 MiB, MB/s"),
        "1 MiB grants / ib_write_bw": over("rondo 1 MiB grants, MB/s", "ib_write_bw 1 MiB, MB/s"),
        **{f"ring of {n}{kind}: allowed by ib_write_bw -b / measured": allowed(n) / figures[f"ring 16 MiB{kind}, {n} ranks, ms"]
           for n in (2, 4) for kind in ("", " allocated")},
        **{f"ring of {n}: tcp / rdma": over(f"tcp ring 16 MiB, {n} ranks, ms", f"ring 16 MiB, {n} ranks, ms") for n in (2, 4)},
        "1 MiB stream: ib_write_bw / tcp": over("ib_write_bw 1 MiB, MB/s", "rondo 1 MiB tcp, MB/s"),
    }


def measure(rounds: int, guest: Guest, report: Callable[[str], None]) -> dict[str, list[float]]:
    kept: dict[str, list[float]] = {figure.name: [] for figure in FIGURES}
    for number in range(rounds):
        for figure in FIGURES:
            kept[figure.name].append(figure.measure(guest))
        report(f"round {number + 1} of {rounds}")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev rdma compare", description="Rondo and perftest on Soft-RoCE, in turns.")
    parser.add_argument("--build", default="build", metavar="FOLDER", help="the build folder with the programs (default: build)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often everything is measured (default: 5)")
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    with tempfile.TemporaryDirectory(prefix="rondo-rdma-") as temporary:
        folder = Path(temporary)
        try:
            image = build([f"{options.build}/tools/rondo"], folder)
        except Unable as reason:
            print(f"skipped: {reason}")
            return SKIPPED
        with Guest(image, folder) as guest:
            guest.check("two_devices")
            kept = measure(options.rounds, guest, lambda line: print(line, file=sys.stderr))
    medians = {name: statistics.median(values) for name, values in kept.items()}
    for name, value in medians.items():
        print(f"{value:10.1f}  {name}  ({', '.join(f'{each:.1f}' for each in kept[name])})")
    for name, value in ratios(medians).items():
        print(f"{value:10.2f}  {name}")
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": kept, "ratios": ratios(medians)}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
