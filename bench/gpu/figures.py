# SPDX-License-Identifier: Apache-2.0
"""Figures of one GPU that several ranks share, each a process.

    figures.py [--build FOLDER | --binaries FOLDER] [--fake] [--seconds SECONDS] [--json FILE] [--log FILE] [NAME...]

Runs `rondo bench --device cuda:0` and its relatives on host memory, the most telling ones first, and
prints a line for each row: p50, bus bandwidth, and what it reaches of copies on the GPU in the same
run. --json has whole documents. --fake tries the path over the fake driver (./dev gpu), whose
figures mean nothing. The exit status is 1 when a run failed; runs beyond --seconds are left out.

NCCL and torch's SyncBatchNorm over it refuse several ranks on one GPU, so they are no peers here.
"""

import argparse
import contextlib
import datetime
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests" / "gpu"))
from gpu import Failure, Machine  # noqa: E402

RANKS = 2, 4, 8
OTHERS = "all_gather", "reduce_scatter", "broadcast", "all_to_all"
QUICK = ("-w", 20)  # warm-ups after which windows and slots are used


def runs(fake):
    """(name, arguments of rondo bench, is on GPUs, hosts), in order of what they tell."""
    top, middle = ("1M", "1M") if fake else ("256M", "64M")
    large = ("-b", "64K", "-e", top, "-f", 8, "-n", 10, "-c", 0)  # of direct and of staged ones
    steps = ("-b", "1K", "-e", middle, "-f", 8, "-n", 20, "-c", 0)
    small = ("-b", 8, "-e", "16K", "-f", 2048, "-n", 200, "--no-ceiling")
    direct, windows = ("--algorithm", "direct", *QUICK), ("--algorithm", "direct", "--allocate", *QUICK)
    for ranks in RANKS:
        yield f"all_reduce, {ranks} ranks, direct in windows", ("--ranks", ranks, *large, *windows), True, 1
    for ranks in RANKS:
        yield f"all_reduce, {ranks} ranks, direct, small", ("--ranks", ranks, *small, *windows), True, 1
        yield f"all_reduce, {ranks} ranks, staged, small", ("--ranks", ranks, *small), True, 1
    for ranks in RANKS:
        yield f"all_reduce, {ranks} ranks, direct through slots", ("--ranks", ranks, *large, *direct), True, 1
    for transport in "tcp", "shm":
        for ranks in (2, 4):
            yield f"all_reduce, {ranks} ranks, staged over {transport}", ("--ranks", ranks, *large, "--transport", transport), True, 1
            yield f"all_reduce, {ranks} ranks, host memory over {transport}", ("--ranks", ranks, *large, "--transport", transport, "--no-ceiling"), False, 1
    for operation in OTHERS:
        for ranks in (2, 4):
            yield f"{operation}, {ranks} ranks, direct in windows", (operation, "--ranks", ranks, *large, *windows), True, 1
    yield "sendrecv --one-way", ("sendrecv", "--one-way", "-b", 8, "-e", "64K" if fake else "4M", "-f", 32, "-n", 20, "--no-ceiling"), True, 1
    yield "all_reduce, 4 ranks on two hosts, two levels", ("--algorithm", "two_level", "--allocate", *steps, *QUICK, "--no-ceiling"), True, 2
    yield "all_reduce, 4 ranks on two hosts, links", ("--algorithm", "ring", *steps, "--no-ceiling"), True, 2
    yield "all_reduce, 8 ranks, staged over shm", ("--ranks", 8, *large, "--no-ceiling"), True, 1
    for operation in OTHERS:
        yield f"{operation}, 4 ranks, direct through slots", (operation, "--ranks", 4, *large, *direct), True, 1
        yield f"{operation}, 4 ranks, staged", (operation, "--ranks", 4, *large, "--no-ceiling"), True, 1
    for kind in "f16", "bf16", "f64":
        yield f"all_reduce, 4 ranks, {kind}, direct in windows", ("--ranks", 4, "-d", kind, *large, *windows), True, 1


def document_of(machine, arguments, on_gpus, hosts, seconds):
    """What the ranks of a run write as JSON."""
    arguments = ["bench", *map(str, arguments), *(["--device", "cuda:0"] if on_gpus else []), "--deadline", "20"]
    if hosts == 1:
        return json.loads(machine.run("rondo", *arguments, "--json", "-", seconds=seconds))
    # 4 ranks, of which each host has two neighbours. The shell waits for all.
    with tempfile.TemporaryDirectory(prefix="rondo-figures-") as folder:
        result = f"{folder}/result.json"
        one = 'RONDO_RANK=$i RONDO_HOST=host$((i / 2)) "$@"'
        script = f"for i in 1 2 3; do {one} >/dev/null & done; i=0; {one} --json {result} >/dev/null && wait"
        variables = {"RONDO_SIZE": "4", "RONDO_RENDEZVOUS": f"file://{folder}/rendezvous", "RONDO_INTERFACE": "lo"}
        machine.run_command(["sh", "-c", script, "sh", str(machine.path("rondo")), *arguments], seconds=seconds, **variables)
        return json.loads(Path(result).read_text(encoding="utf-8"))


def print_rows(document):
    for row in document["results"]:
        place = "in place" if row.get("in_place") else ""
        ceiling = f"{row['ceiling_percent']:6.1f} % of {row['ceiling']:.0f} GB/s" if row.get("ceiling") else ""
        latency = f"latency {row['latency_p50_us']:.1f} us" if "latency_p50_us" in row else ""
        print(f"  {row['bytes']:>11} B {place:<8} {row['algorithm'] or '':<9} p50 {row['p50_us']:>10.1f} min {row['min_us']:>10.1f} us "
              f"busbw {row['busbw']:>8.2f} GB/s {ceiling}{latency}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--binaries")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--json")
    parser.add_argument("--log")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.quick, arguments.each = False, 0
    machine = Machine(arguments)
    records, failures, left_out = [], 0, []
    for name, options, on_gpus, hosts in runs(arguments.fake):
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        if machine.left() < 5:
            left_out.append(name)
            continue
        begin = time.monotonic()
        record = {"name": name}
        try:
            record["document"] = document_of(machine, options, on_gpus, hosts, 40)
        except (Failure, OSError, ValueError) as failure:
            record["error"] = str(failure)
            failures += 1
        record["seconds"] = round(time.monotonic() - begin, 1)
        records.append(record)
        print(f"{name}  ({record['seconds']} s)", flush=True)
        if "error" in record:
            if arguments.log:
                with open(arguments.log, "a", encoding="utf-8") as file:
                    file.write(f"==== {name}\n{record['error']}\n")
            lines = record["error"].splitlines()
            print("\n".join("  " + line[:300] for line in ["failed", *lines[:2], *lines[-5:]]), flush=True)
        else:
            print_rows(record["document"])
        if arguments.json:
            text = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": platform.platform(),
                    "fake": arguments.fake, "runs": records}
            with contextlib.suppress(OSError):
                Path(arguments.json).write_text(json.dumps(text) + "\n", encoding="utf-8")
    print(f"figures: {len(records) - failures} runs, {failures} failed, {len(left_out)} left out{': ' if left_out else ''}{'; '.join(left_out)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
