# SPDX-License-Identifier: Apache-2.0
"""Without a job secret any user of the host could join as a rank at a tcp:// rendezvous.
Usage: another_user_joins_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from program import QUICK, clean_environment, free_port, main, rondo_for_every_user  # noqa: E402

STRANGER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
RONDO = rondo_for_every_user()
BENCH = [RONDO, "bench", "all_reduce", "-b", "4K", "-e", "4K", *QUICK]


class AnotherUser(unittest.TestCase):
    def start(self, rank, port, transport, prefix=(), **changes):
        environment = clean_environment(RONDO_RANK=str(rank), RONDO_SIZE="2", RONDO_RENDEZVOUS=f"tcp://127.0.0.1:{port}",
                                        RONDO_TRANSPORT=transport, RONDO_CONNECT_DEADLINE="60", **changes)
        process = subprocess.Popen([*prefix, *BENCH], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd="/")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_another_user_is_refused_and_the_job_goes_on(self):
        for transport in "tcp", "shm":
            with self.subTest(transport):
                port = free_port()
                first = self.start(0, port, transport)
                stranger = self.start(1, port, transport, STRANGER)
                _, words = stranger.communicate(timeout=120)
                self.assertNotEqual(stranger.returncode, 0, "another user took part")
                self.assertIn("run as different users", words)
                self.assertIn("RONDO_SECRET", words)
                own = self.start(1, port, transport)
                _, words = own.communicate(timeout=120)
                self.assertEqual(own.returncode, 0, words)
                _, words = first.communicate(timeout=120)
                self.assertEqual(first.returncode, 0, words)

    def test_two_users_may_share_a_secret(self):
        port = free_port()
        ranks = [self.start(0, port, "tcp", RONDO_SECRET="shared"), self.start(1, port, "tcp", STRANGER, RONDO_SECRET="shared")]
        for rank in ranks:
            _, words = rank.communicate(timeout=120)
            self.assertEqual(rank.returncode, 0, words)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: only root can start a process of another user")
        sys.exit(77)
    if subprocess.run([*STRANGER, RONDO, "--version"], capture_output=True, cwd="/").returncode != 0:
        print("skipped: another user cannot start the program (is setpriv missing?)")
        sys.exit(77)
    main()
