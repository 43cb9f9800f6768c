# SPDX-License-Identifier: Apache-2.0
"""peer_ceiling sums right, for sizes around its lines, parts and chunks. Arguments: bench/peers, and
the folder of the build."""

import sys
import tempfile
import unittest
from pathlib import Path

build = Path(sys.argv.pop())
sys.path.insert(0, sys.argv.pop())

from group import Group
from launch import CEILING, Job, launch_of

SIZES = (4, 8, 56, 60, 64, 68, 1000, 16384, 65540, 262144, 262148, 1_500_004)


class Ceiling(unittest.TestCase):
    def test_sums(self):
        for ranks in (1, 2, 3, 5):
            with self.subTest(ranks=ranks), tempfile.TemporaryDirectory() as folder:
                group = Group(CEILING, ranks, Path(folder), 60)
                try:
                    job = Job("shm", ranks, group.control, Path(folder), False, build / "tools" / "rondo")
                    group.start([launch_of(CEILING, build, job)])
                    group.wait_until_ready()
                    for size in SIZES:
                        self.assertEqual(group.command(f"check default {size}"), ["right"] * ranks, size)
                        # Many calls in a row use each slot again.
                        for answer in group.command(f"turn default {size} 0 20"):
                            self.assertEqual(len(answer.split()), 21)
                finally:
                    group.stop()


if __name__ == "__main__":
    unittest.main()
