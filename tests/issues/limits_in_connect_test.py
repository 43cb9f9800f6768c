# SPDX-License-Identifier: Apache-2.0
"""When one rank lacked something in connect() (threads, descriptors, ports, a file), it got a raw
exception, and the others heard only at their deadline that it was missing.
Usage: limits_in_connect_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from program import QUICK, clean_environment, free_port, main, rondo_for_every_user  # noqa: E402

RONDO = rondo_for_every_user()
BENCH = [RONDO, "bench", "all_reduce", "-b", "4K", "-e", "4K", *QUICK]
# The deadline in seconds, far more than any of this takes: a rank that is slow has waited for it.
PATIENCE = 300
# A user without other processes.
USER = 200_000 + os.getpid()


def limit_files(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


class LimitsInConnect(unittest.TestCase):
    def start(self, rank, size, port, prefix=(), before=None, **changes):
        environment = clean_environment(RONDO_RANK=str(rank), RONDO_SIZE=str(size), RONDO_SECRET="shared",
                                        RONDO_RENDEZVOUS=f"tcp://127.0.0.1:{port}", RONDO_CONNECT_DEADLINE=str(PATIENCE)) | changes
        process = subprocess.Popen([*prefix, *BENCH], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd="/", preexec_fn=before)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def check(self, ranks, begin, *words):
        """All fail with these words, long before their deadline."""
        causes = [rank.communicate(timeout=PATIENCE)[1].strip() for rank in ranks]
        self.assertLess(time.monotonic() - begin, PATIENCE / 2, causes)
        for rank, cause in zip(ranks, causes):
            self.assertNotEqual(rank.returncode, 0, cause)
            for word in words:
                self.assertIn(word, cause, causes)

    def run_with(self, size, culprit, *words, prefix=(), before=None, **changes):
        port, begin = free_port(), time.monotonic()
        ranks = [self.start(rank, size, port, prefix=prefix if rank == culprit else (), before=before if rank == culprit else None,
                            **(changes if rank == culprit else {})) for rank in range(size)]
        self.check(ranks, begin, *words)

    @unittest.skipUnless(os.geteuid() == 0, "takes root, to become another user")
    def test_threads(self):
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        for culprit in 0, 1:
            # Beside the first thread and the one that ends a run early, a rank starts three: control,
            # set-up of connections, engine. On one host the second has ended when the third starts.
            for threads in 1, 2, 3:
                with self.subTest(culprit=culprit, threads=threads):
                    self.run_with(2, culprit, f"rank {culprit} could not connect: thread rondo-", "cannot be started",
                                  f"this user may have {threads} threads and processes", "ulimit -u",
                                  prefix=[*user, "prlimit", f"--nproc={threads}:{threads}"])

    def test_descriptors(self):
        for culprit in 0, 2:
            with self.subTest(culprit=culprit):
                self.run_with(4, culprit, f"rank {culprit} cannot take part: ", f"joining as rank {culprit} of 4 needs",
                              "its limit is 12 (hard limit 12)", "ulimit -n", before=limit_files(12))

    def test_a_soft_limit_is_raised(self):
        port = free_port()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        ranks = [self.start(rank, 2, port, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, hard)), RONDO_LOG="info")
                 for rank in range(2)]
        for rank, process in enumerate(ranks):
            words = process.communicate(timeout=PATIENCE)[1]
            self.assertEqual(process.returncode, 0, words)
            self.assertIn(f"joining as rank {rank} of 2: raised the limit of open files (RLIMIT_NOFILE) from 12 to", words)

    def test_ports(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for culprit in 0, 1:
                with self.subTest(culprit=culprit):
                    self.run_with(3, culprit, f"rank {culprit} cannot take part: ", f"on any port from {port} to {port}",
                                  RONDO_PORT_RANGE=f"{port}-{port}", RONDO_TRANSPORT="tcp", RONDO_INTERFACE="127.0.0.0/8")

    def test_a_variable_that_cannot_be_read(self):
        for culprit in 0, 1:
            for name, value in {"PORT_RANGE": "9-1", "INTEGRITY": "all", "DEADLINE": "soon", "CONNECT_DEADLINE": "soon", "REPRODUCIBLE": "maybe"}.items():
                with self.subTest(culprit=culprit, name=name):
                    self.run_with(3, culprit, f"rank {culprit} cannot take part: RONDO_{name} is '{value}': it must be ",
                                  **{f"RONDO_{name}": value})

    def test_an_interface_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            for culprit in 0, 1:
                for place in {}, {"RONDO_RENDEZVOUS": f"file://{folder}/{culprit}"}:
                    with self.subTest(culprit=culprit, place=place):
                        port, begin = free_port(), time.monotonic()
                        ranks = [self.start(rank, 3, port, **place, **({"RONDO_INTERFACE": "eth99"} if rank == culprit else {}))
                                 for rank in range(3)]
                        self.check(ranks, begin, f"rank {culprit} cannot take part: ", "no network interface matches 'eth99'")

    def test_constants(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("latency: much\n")
            file.flush()
            self.run_with(3, 0, "rank 0 cannot take part: the constants in", file.name, RONDO_CONSTANTS=file.name)


if __name__ == "__main__":
    if "sanitizers" in sys.argv:
        sys.argv.remove("sanitizers")
        LimitsInConnect.test_threads = unittest.skip("sanitizers have threads of their own")(LimitsInConnect.test_threads)
    main()
