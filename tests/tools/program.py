# SPDX-License-Identifier: Apache-2.0
"""What the tests of the rondo program share: its path, and how to run it without a launcher's
variables."""

import atexit
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cases import all_cases, drawn_of, few_cases, heed_signals  # noqa: E402, F401

RONDO = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "rondo"
# In a build with a sanitizer (tests/meson.build).
FEW_CASES = few_cases()
LAUNCHER = re.compile(r"^(RONDO_|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$")
# The columns of the narrow table, in their order.
CELLS = ["size", "type", "redop", "root", "place", "algorithm", "p50", "p99", "transf", "algbw", "busbw", "ceil", "wrong"]
# Some members of every row of a record.
COLUMNS = ["bytes", "count", "type", "op", "in_place", "algorithm", "min_us", "p50_us", "p99_us", "algbw", "busbw", "wrong",
           "ceiling", "ceiling_of", "ceiling_percent"]
QUICK = ["--no-ceiling", "-n", "3", "-w", "1"]


def clean_environment(**changes):
    environment = {name: value for name, value in os.environ.items() if not LAUNCHER.match(name)}
    environment.update(changes)
    return environment


def rondo(*arguments, timeout=60, **changes):
    return subprocess.run([RONDO, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=clean_environment(**changes))


def rondo_for_every_user():
    """Copies the program to where every user may start it, because build folders may be closed to
    others."""
    folder = tempfile.mkdtemp(prefix="rondo-program-")
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    copy = shutil.copy(RONDO, folder)
    os.chmod(copy, 0o755)
    return copy


def free_port():
    """A port that no connection gets by itself: those that the system gives out begin at 32768, and
    a rank that connects before rank 0 listens could get the very port that it calls."""
    for port in random.sample(range(15000, 30000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("none of 100 ports of 127.0.0.1 is free")


def ranks_of(process):
    """The process ids of the ranks that rondo bench or rondo run has started."""
    return list(map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


def rows(table):
    return [line.split() for line in table.splitlines() if line.strip() and not line.startswith("#")]


def cells(table):
    """The rows of the narrow table as dictionaries; the last column is rank, share and time."""
    return [dict(zip(CELLS, row), late=row[len(CELLS):]) for row in rows(table)]


class BenchTest(unittest.TestCase):
    def bench(self, *arguments, status=0, **changes):
        result = rondo("bench", *arguments, **changes)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def document(self, *arguments):
        return json.loads(self.bench(*arguments, "--json", "-").stdout)

    def check_refused(self, cases):
        """Each command line is refused, with all of its texts and without a table."""
        for arguments, parts in cases.items():
            with self.subTest(arguments=arguments):
                result = rondo("bench", *arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                for part in parts:
                    self.assertIn(part, result.stderr)

    def started(self, *arguments, command=(), **options):
        """The program, which runs until it ends or the test does."""
        options.setdefault("env", clean_environment())
        process = subprocess.Popen([*command, RONDO, *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        for clean in process.stdout.close, process.stderr.close, process.kill:
            self.addCleanup(clean)
        return process


def main():
    unittest.main(module="__main__", verbosity=2)
