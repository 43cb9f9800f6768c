#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks the protocol of bench/peers/harness.cc like one rank of a library, and fails as
FAKE_<NAME> says.

FAKE_<NAME>_STARTS names a file that counts the starts: rank 0 is slower with each."""

import os
import socket
import sys
import time

name = "_".join([os.path.basename(sys.argv[0]).removeprefix("peer_"), *(["allocated"] if "allocate" in sys.argv else [])])
if "/before/" in sys.argv[0]:
    name = name.replace("rondo", "before")
fault = os.environ.get(f"FAKE_{name.upper()}", "")
microseconds = int(os.environ.get(f"FAKE_{name.upper()}_US", "100"))
launcher = "RONDO" if name.startswith(("rondo", "before")) else "FAKE"  # see fake_mpirun.py
rank, size = map(int, sys.argv[2:4] if name in ("gloo", "ceiling") else (os.environ[f"{launcher}_RANK"], os.environ[f"{launcher}_SIZE"]))

if fault == "no_start" and rank == 1:
    sys.exit("cannot find the network")
driver = socket.socket(socket.AF_UNIX)
driver.connect(sys.argv[1])
lines = driver.makefile("rw")


def say(text: str) -> None:
    print(text, file=lines, flush=True)


starts = 1
if rank == 0 and (counted := os.environ.get(f"FAKE_{name.upper()}_STARTS")):
    with open(counted, "a+") as file:
        print("started", file=file, flush=True)
        file.seek(0)
        starts = 2 * len(file.readlines())
algorithms = "slow fast" if name == "gloo" else "default"
say(f"ready {0 if fault == 'same_rank' else rank} {size} {algorithms}")
for line in lines:
    command, *arguments = line.split()
    if command == "quit":
        if fault == "no_end":
            time.sleep(1000)
        sys.exit(0)
    if command == "check":
        say("wrong element 3: 1 instead of 2" if fault == "wrong" and rank == 1 else "right")
    if command in ("turn", "fresh"):
        if told := os.environ.get("FAKE_TOLD"):
            with open(told, "a") as file:
                print(name, command, rank, sorted(os.sched_getaffinity(0)), os.getsid(0), sep="|", file=file)
        if fault == "hang" and rank == 1:
            time.sleep(1000)
        if fault == "die" and rank == 1:
            sys.exit("out of luck")
        if fault == "fail" and rank == 1:
            say("failed rank 1 lost rank 0")
        slower = starts * (1 + (arguments[0] == "slow") + rank)
        times = [microseconds * 1000 * slower] * int(arguments[3])
        if fault == "outlier" and rank == 0:
            # Rank 0 is the fastest, except in the first iteration. With two ranks the mean of the
            # turn is six times its p50, whatever the number of iterations.
            times[0] = microseconds * 1000 * (2 + 10 * len(times))
        say(" ".join(map(str, ["times", *times])))
