# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/openmpi.sh and mpich.sh between hosts. A script stands for the ssh with which
mpirun starts its daemons there.
Usage: mpirun_test.py PATH_OF_RONDO [unittest arguments]"""

import shutil
import unittest

from case import ROOT, VICTIM, LauncherCase, main, one_end
from stage import EXAMPLES, HERE, on, skip

OPENMPI, MPICH = "mpirun.openmpi", "mpiexec.hydra"
SSH = str(HERE / "stand_ins" / "stand-in-ssh")
HOSTS = "node0,node1,node2,node3"


@one_end
@unittest.skipUnless(shutil.which(OPENMPI), f"{OPENMPI} is not installed (Debian: openmpi-bin)")
class OpenMpi(LauncherCase):
    def launch(self, size, threshold):
        return self.stage.run(on("node0", [EXAMPLES / "openmpi.sh", HOSTS, "-b", size, "-e", size, "--min-bandwidth", threshold]),
                              MPIRUN=OPENMPI, OMPI_MCA_plm_rsh_agent=SSH, **ROOT)

    def test_passed(self):
        self.assertIn("on node3", self.check_passed())

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        # mpirun reports whichever rank it hears of first.
        [status] = self.check_killed(says=f"rank {VICTIM} .*on node node{VICTIM} exited on signal 9|lost rank {VICTIM}")
        self.assertIn(status, (3, 128 + 9))


@one_end
@unittest.skipUnless(shutil.which(MPICH), f"{MPICH} is not installed (Debian: mpich)")
class Mpich(LauncherCase):
    def launch(self, size, threshold):
        return self.stage.run(on("node0", [EXAMPLES / "mpich.sh", HOSTS, "-b", size, "-e", size, "--min-bandwidth", threshold]),
                              MPIEXEC=MPICH, HYDRA_LAUNCHER_EXEC=SSH)

    def test_passed(self):
        self.assertIn("on node3", self.check_passed())

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        self.check_killed(says=f"RUNNING AT node{VICTIM}|lost rank {VICTIM}")


if __name__ == "__main__":
    if shutil.which(OPENMPI) is None and shutil.which(MPICH) is None:
        skip(f"neither {OPENMPI} nor {MPICH} is installed (Debian: openmpi-bin, mpich)")
    main()
