# SPDX-License-Identifier: Apache-2.0
"""strace counts the system calls of two ranks that share memory, each on a core of its own: they make
some in a millisecond, and none for an operation (docs/reference/hot-path.md).
Usage: system_calls_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from program import QUICK, RONDO, clean_environment, main

SKIPPED = 77  # the exit status with which a test tells meson that it could not run
BENCH = [RONDO, "bench", "all_reduce", "--ranks", "2", "--bind", "core", "--transport", "shm"]
# The calls of both ranks together that depend on time and not on operations: transports look at
# their sockets, and background threads at their callers. About 3 were seen, also while other
# programs kept both cores busy. One call of one rank for each operation is 12 for 1 MiB, and far
# more for fewer bytes.
CALLS_PER_MILLISECOND = 5
CALLS_PER_OPERATION = 0.01
ATTEMPTS = 3


def why_not():
    """Why this test cannot run here; None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed (Debian: strace)"
    traced = subprocess.run(["strace", "-f", "-c", "-o", os.devnull, "true"], capture_output=True, text=True, timeout=60)
    if traced.returncode != 0:
        return f"strace may not trace here: {traced.stderr.strip()}"
    bound = subprocess.run([*BENCH, "-b", "8", "-e", "8", *QUICK], capture_output=True, text=True, timeout=60, env=clean_environment())
    if "this process may use" in bound.stderr:
        return bound.stderr.strip()
    return None


def count(size, iterations):
    """Returns the calls by name, and the milliseconds, of a run. A row has two operations for each
    iteration, one of them in place."""
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary")
        begin = time.monotonic()
        subprocess.run(["strace", "-f", "-c", "-o", summary, *BENCH, "-b", str(size), "-e", str(size), "-n", str(iterations), "-c", "0",
                        "--no-ceiling"], check=True, stdout=subprocess.DEVNULL, timeout=200, env=clean_environment())
        milliseconds = (time.monotonic() - begin) * 1000
        with open(summary, encoding="utf-8") as lines:
            rows = [line.split() for line in lines]
    # % time, seconds, usecs/call, calls, errors (may be empty), syscall
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}, milliseconds


class SystemCalls(unittest.TestCase):
    def attempt(self, size, iterations):
        """Returns whether ten times as many iterations stay within the bounds, and in words what was
        counted. Both runs have the calls of joining and leaving, so the difference has none."""
        few, short = count(size, iterations)
        many, long = count(size, 10 * iterations)
        more = {name: many.get(name, 0) - few.get(name, 0) for name in many}
        self.assertGreater(sum(few.values()), 100, "strace saw the ranks")
        milliseconds, operations = max(long - short, 0), 2 * 9 * iterations
        words = (f"{size} B: {sum(more.values())} system calls more in {milliseconds:.0f} ms for {operations} operations more: "
                 + ", ".join(f"{name} {calls}" for name, calls in sorted(more.items(), key=lambda one: -one[1])[:8]))
        return sum(more.values()) < CALLS_PER_MILLISECOND * milliseconds + CALLS_PER_OPERATION * operations, words

    def test_none_for_an_operation(self):
        for size, iterations in (8, 10_000), (16 << 10, 3000), (1 << 20, 500):
            with self.subTest(size=size):
                for _ in range(ATTEMPTS):
                    good, words = self.attempt(size, iterations)
                    print(words, flush=True)
                    if good:
                        break
                self.assertTrue(good, words)


if __name__ == "__main__":
    WHY = why_not()
    if WHY:
        print(f"skipped: {WHY}")
        sys.exit(SKIPPED)
    main()
