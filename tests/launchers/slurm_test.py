# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/slurm.sbatch. bash runs the batch script, with the variables that sbatch gives it,
and stand_ins/srun starts its tasks. Real Slurm is in srun_test.py.
Usage: slurm_test.py PATH_OF_RONDO [unittest arguments]"""

from case import VICTIM, LauncherCase, main, one_end
from stage import EXAMPLES

JOB = "the job itself runs"


@one_end
class Slurm(LauncherCase):
    def launch(self, size, threshold):
        return self.stage.run(["bash", EXAMPLES / "slurm.sbatch", "echo", JOB], BYTES=size, MIN_BANDWIDTH=threshold, RONDO_TEST_SLURM_NODES=",".join(self.hosts),
                              SLURM_JOB_ID="4711", SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_JOB_NUM_NODES="4")

    def test_passed(self):
        self.assertIn(JOB, self.check_passed())

    def test_missed(self):
        statuses, output = self.check_missed()
        self.assertEqual(statuses, [1])
        self.assertNotIn(JOB, output)

    def test_killed(self):
        self.assertEqual(self.check_killed(says=f"3: rondo bench: rank 3: .*lost rank {VICTIM}"), [128 + 9])

    def test_directives(self):
        """The preflight ends, and leaves the number of tasks to the job."""
        directives = [line.split()[1] for line in (EXAMPLES / "slurm.sbatch").read_text().splitlines() if line.startswith("#SBATCH ")]
        self.assertTrue(any(directive.startswith("--time=") for directive in directives))
        self.assertFalse(any("ntasks" in directive for directive in directives))


if __name__ == "__main__":
    main()
