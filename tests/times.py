#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long test programs take, and their processor time.

    times.py FILE COMMAND...    runs COMMAND and adds a line to FILE: a wrapper for `meson test`
    times.py --table FILE       prints FILE, the longest first
"""

import os
import resource
import subprocess
import sys
import time


def short(command):
    """The command without the folders of its files."""
    return " ".join(os.path.basename(word) if "/" in word else word for word in command if word != "-B")


def run(path, command):
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        status = process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{time.monotonic() - began:8.1f} {used.ru_utime + used.ru_stime:9.1f}  {short(command)}\n")
    # The status that a shell gives for a process that a signal has ended.
    return status if status >= 0 else 128 - status


def print_table(path):
    with open(path, encoding="utf-8") as file:
        lines = sorted(file, key=lambda line: -float(line.split()[0]))
    print("       s processor  program\n" + "".join(lines), end="")
    print(f"{'all':>8} {sum(float(line.split()[1]) for line in lines):9.1f}")


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print_table(sys.argv[2])
    else:
        sys.exit(run(sys.argv[1], sys.argv[2:]))
