# SPDX-License-Identifier: Apache-2.0
"""The ceiling of the way between cores when something is in its way.
Usage: ceiling_test.py PATH_OF_RONDO"""

import os
import re
import resource
import shutil
import signal
import tempfile
import time
import unittest

from program import FEW_CASES, BenchTest, cells, clean_environment, drawn_of, main, ranks_of, rows


class Ceiling(BenchTest):
    def ranks_that_measure(self, process):
        """Waits for the header, which is printed before the first ceiling is measured."""
        while not (line := process.stdout.readline()).startswith("#       (B)"):
            self.assertNotEqual(line, "", process.poll())
        self.assertIn("cores", line)
        return ranks_of(process)

    def test_a_killed_rank_ends_the_others(self):
        """Six times, at other moments of the first ceiling, which takes more than a second."""
        # A sanitizer takes more than a second for less.
        size = "32M" if FEW_CASES else "128M"
        for turn in drawn_of(range(6), 2):
            victim = turn % 3
            with self.subTest(turn=turn, victim=victim):
                process = self.started("bench", "--ranks", 3, "-b", size, "-e", size, "-n", 1, "-c", 0)
                ranks = self.ranks_that_measure(process)
                time.sleep(0.1 + 0.05 * turn)
                os.kill(ranks[victim], signal.SIGKILL)
                killed = time.monotonic()
                output, errors = process.communicate(timeout=60)
                # They give up a rank that lives and does nothing after 10.
                self.assertLess(time.monotonic() - killed, 9, errors)
                self.assertEqual(rows(output), [])
                self.assertEqual(process.returncode, 128 + 9, errors)
                self.assertIn(f"rondo bench: rank {victim} (pid {ranks[victim]}) was killed by signal 9 (SIGKILL)", errors)
                for rank in {0, 1, 2} - {victim}:
                    self.assertRegex(errors, rf"(?m)^rondo bench: rank {rank}: .*rank {victim}")

    def test_a_stopped_rank_costs_the_ceiling_only(self):
        process = self.started("bench", "--ranks", 2, "-b", "64M", "-e", "64M", "-n", 1)
        ranks = self.ranks_that_measure(process)
        time.sleep(0.1)
        os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(12)
        os.kill(ranks[1], signal.SIGCONT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("rondo bench: rank 0: the ceiling was not measured: another rank did nothing for 10 seconds\n", errors)
        self.assertEqual((cells(output)[0]["ceil"], cells(output)[0]["wrong"]), ("-", "0"))

    def ends_without_a_table_of_cores(self, cause, processes):
        """The cause is what the standard error of all ranks says."""
        output = errors = ""
        for process in processes:
            one, another = process.communicate(timeout=60)
            output, errors = output + one, errors + another
            self.assertEqual(process.returncode, 0, another)
        self.assertRegex(errors, r"^rondo bench: rank \d: cannot measure the ceiling between the cores, so memcpy is the ceiling: " + cause + r"\n$")
        self.assertRegex(output, r"(?m)^#       \(B\).* memcp ")
        for row in cells(output):
            self.assertNotEqual(row["ceil"], "-")

    def test_no_file_for_the_memory(self):
        """A limit that is enough for the memory of each rank, and not for that of the ceiling."""
        def run(limit):
            return self.started("bench", "--ranks", 8, "-b", "4K", "-e", "4K", "-n", 5, "--transport", "shm",
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))

        _, errors = run(4096).communicate(timeout=60)
        enough = re.search(r"8 ranks need (\d+) bytes of shared memory each", errors)
        self.assertTrue(enough, errors)
        self.ends_without_a_table_of_cores(
            r"shared memory needs \d+ bytes, more than the limit of file sizes allows: raise it \(ulimit -f\)", [run(int(enough[1]))])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "needs root for a PID namespace")
    def test_another_pid_namespace(self):
        """The number of rank 0 means another process there."""
        with tempfile.TemporaryDirectory() as folder:
            def run(rank, *command):
                return self.started("bench", "-b", "4K", "-e", "4K", "-n", "5", "--transport", "shm", command=command,
                                    env=clean_environment(RONDO_RANK=str(rank), RONDO_SIZE="2", RONDO_RENDEZVOUS=f"file://{folder}/job"))

            self.ends_without_a_table_of_cores("this rank and rank 0 are in different PID namespaces",
                                               [run(0), run(1, "unshare", "--pid", "--fork", "--kill-child")])


if __name__ == "__main__":
    main()
