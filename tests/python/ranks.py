# SPDX-License-Identifier: Apache-2.0
"""Runs functions of a test file as ranks, each a process of its own.

A test file has functions that take a connected Communicator, and cases that name them:

    def adds(c): ...

    class Sums(ranks.Case):
        def test_two(self):
            self.run_ranks(2, adds)

    if __name__ == "__main__":
        ranks.main()
"""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy
except ImportError:
    print("skipped: no NumPy for", sys.executable)
    sys.exit(77)

import rondo

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cases import drawn_of  # noqa: E402

assert numpy  # the import is the check

# No test waits so long unless something hangs.
LIMIT_S = 60
TCP = {"RONDO_TRANSPORT": "tcp"}
CONNECT = {"connect_deadline": 50, "deadline": 50}


class Ranks:
    """Processes that run one function, in a folder of their own."""

    def __init__(self, size, function, variables):
        self.folder = tempfile.TemporaryDirectory(prefix="rondo-python-")
        file = Path(sys.modules[function.__module__].__file__).resolve()
        self.processes = [self._start(rank, size, file, function.__name__, variables) for rank in range(size)]

    def _start(self, rank, size, file, name, variables):
        environment = {**os.environ, "RONDO_RANK": str(rank), "RONDO_SIZE": str(size), "RONDO_RENDEZVOUS": f"file://{self.folder.name}/join",
                       "RONDO_TEST_FOLDER": self.folder.name, **variables}
        return subprocess.Popen([sys.executable, "-B", "-X", "faulthandler", str(file), "--rank", name], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self):
        """The exit status and the output of each rank. Kills what runs too long."""
        results = []
        for process in self.processes:
            try:
                output, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output = process.communicate()[0] + f"\nkilled: it ran longer than {LIMIT_S} s"
            results.append((process.returncode, output))
        self.folder.cleanup()
        return results


class Case(unittest.TestCase):
    """A test case that runs ranks."""

    def run_one_of(self, *ways):
        """Runs one of these ways, which the seed draws; in the set all, every one. A way is a
        number of ranks, a function, and variables."""
        for size, function, variables in drawn_of(ways):
            self.run_ranks(size, function, **variables)

    def run_ranks(self, size, function, statuses=None, **variables):
        """Runs the function on every rank. statuses: the exit status that a rank should have, by rank; else 0."""
        results = Ranks(size, function, variables).end()
        for rank, (status, output) in enumerate(results):
            self.assertEqual(status, (statuses or {}).get(rank, 0), f"rank {rank} of {size} in {function.__name__} printed:\n{output}")
        return [output for _, output in results]


def die():
    """Ends this process at once, as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    """Runs the cases of the file, or one function as a rank."""
    if sys.argv[1:2] == ["--rank"]:
        function = getattr(sys.modules["__main__"], sys.argv[2])
        if getattr(function, "connects_itself", False):
            function()
        else:
            with rondo.connect(**CONNECT) as communicator:
                function(communicator)
    else:
        unittest.main(verbosity=1)


def connects_itself(function):
    """Marks a function of a rank that takes no communicator."""
    function.connects_itself = True
    return function
