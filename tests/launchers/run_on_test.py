# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/run-on.sh over network namespaces: `ip netns exec` stands for ssh.
Usage: run_on_test.py PATH_OF_RONDO [unittest arguments]"""

import signal

from case import GOOD, LONG, MEASURING, VICTIM, LauncherCase, main, one_end
from stage import EXAMPLES


class Loop(LauncherCase):
    def launch(self, size, threshold):
        return self.stage.run([EXAMPLES / "run-on.sh", "node0,node1,node2,node3", "rondo", "bench", "-b", size, "-e", size,
                               "--min-bandwidth", threshold], REACH="ip netns exec")


@one_end
class RunOn(Loop):
    def test_passed(self):
        self.check_passed()

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        # The status is that of the rank that was killed.
        self.assertEqual(self.check_killed(says=f"run-on.sh: rank {VICTIM} on node{VICTIM} ended with status 137"), [137])

    def test_terminated(self):
        """SIGTERM to the script ends every rank."""
        with self.launch(LONG, GOOD) as run:
            run.until_said(MEASURING)
            run.terminate()
            self.assertEqual(run.finish(), [128 + signal.SIGTERM])


class Names(Loop):
    def test_an_address_that_is_listed_twice(self):
        """Rank 0 must not try to listen twice at one address."""
        with open("/etc/hosts") as names, open("/etc/netns/node0/hosts", "a") as table:
            table.write(2 * next(line for line in names if line.endswith(" node0\n")))
        self.check_passed()


if __name__ == "__main__":
    main()
