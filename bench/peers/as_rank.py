#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Becomes the program of one rank that `rondo run` has started.

    as_rank.py CORES PROGRAM ARGUMENTS...

CORES is a list of lists of processors in JSON: rank r may use those of list r, modulo the number of
lists; [] binds no rank. The arguments {rank} and {size} become the rank and the number of ranks."""

import json
import os
import sys

rank, size = int(os.environ["RONDO_RANK"]), int(os.environ["RONDO_SIZE"])
cores = json.loads(sys.argv[1])
if cores:
    os.sched_setaffinity(0, cores[rank % len(cores)])
numbers = {"{rank}": str(rank), "{size}": str(size)}
command = [numbers.get(argument, argument) for argument in sys.argv[2:]]
os.execv(command[0], command)
