#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rondo and gloo under torch.distributed, in turns on this machine: medians and ratios.

"alone" is what torch costs without communication: as many processes at once, each a group of its
own. No backend can be much faster than that.

    compare.py [--ranks N] [--rounds N] [--case NAME]...

Needs torch and the package rondo in the interpreter's environment.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BACKENDS = ("gloo", "rondo", "alone")


def run(backend, ranks, cases):
    command = [sys.executable, "-B", "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
               "--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
               os.path.join(HERE, "rank.py"), backend, *cases]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600,
                         env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def processor():
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", default=[])
    options = parser.parse_args()
    times = {}
    for _ in range(options.rounds):
        for backend in BACKENDS:
            for name, seconds in run(backend, options.ranks, options.case).items():
                times.setdefault(name, {}).setdefault(backend, []).append(seconds)
    print(f"{processor()}, {os.cpu_count()} cores, {options.ranks} ranks, {options.rounds} rounds")
    print(f"{'':24}{'gloo us':>12}{'rondo us':>12}{'alone us':>12}{'gloo/rondo':>12}")
    for name, by_backend in times.items():
        gloo, rondo, alone = (statistics.median(by_backend[backend]) for backend in BACKENDS)
        print(f"{name:24}{gloo * 1e6:12.1f}{rondo * 1e6:12.1f}{alone * 1e6:12.1f}"
              f"{gloo / rondo:12.2f}")


if __name__ == "__main__":
    main()
