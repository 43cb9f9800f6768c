# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/torchrun.sh on two hosts with two ranks each.
Usage: torchrun_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import pathlib
import subprocess
import sys

from case import VICTIM, LauncherCase, main, one_end
from stage import EXAMPLES, HERE, SECRETS, on, skip

# It prints its folder, if it is complete.
FIND = [sys.executable, "-B", HERE.parent / "torch" / "environment.py", "--find"]


@one_end
class Torchrun(LauncherCase):
    hosts = ["node0", "node1"]

    def launch(self, size, threshold):
        self.stage.secret(f"{SECRETS}/rondo")
        return self.stage.run(*(on(host, ["env", f"NODE_RANK={rank}", EXAMPLES / "torchrun.sh", "-b", size, "-e", size, "--min-bandwidth", threshold])
                                for rank, host in enumerate(self.hosts)),
                              TORCHRUN=TORCHRUN, NODES="2", MASTER="node0", RANKS="2", RONDO_SECRET_FILE=f"{SECRETS}/rondo", OMP_NUM_THREADS="1")

    def test_passed(self):
        self.assertIn("ranks 2 to 3 on node1", self.check_passed())

    def test_missed(self):
        # Rank 0 is on node0. How the agent on node1 ends is up to torchrun.
        self.assertEqual(self.check_missed()[0][0], 1)

    def test_killed(self):
        # Rank 2 is on node1.
        self.assertEqual(self.check_killed(says=f"lost rank {VICTIM}"), [1, 1])


if __name__ == "__main__":
    found = subprocess.run(FIND, capture_output=True, text=True)
    if found.returncode != 0:
        skip("there is no torchrun to test with: ./dev setup --torch installs it")
    TORCHRUN = str(pathlib.Path(found.stdout.strip()) / "bin" / "torchrun")
    main()
