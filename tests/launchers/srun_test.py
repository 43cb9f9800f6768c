# SPDX-License-Identifier: Apache-2.0
"""Real Slurm: slurm.sbatch, srun with each kind of PMI, and mpirun in an allocation, on hosts whose
/etc/hosts is Debian's.
Usage: srun_test.py PATH_OF_RONDO [unittest arguments]"""

import pathlib
import re
import shutil
import subprocess

from case import GOOD, QUICK, ROOT, SHORT, VICTIM, LauncherCase, main
from daemons import lacks_slurm, start_slurm
from mpirun_test import MPICH, OPENMPI
from stage import EXAMPLES, HERE, Run, on, skip
from torchrun_test import FIND

JOB = "the job itself runs"
SECRET = {"RONDO_SECRET": "a secret that every rank has"}
SPREAD, TWO_EACH = ["--nodes=3"], ["--nodes=2", "--ntasks=4", "--ntasks-per-node=2"]


class SlurmCase(LauncherCase):
    hosts = ["node0", "node1", "node2"]
    daemons = [start_slurm]

    def start(self, command: list, **variables: str) -> Run:
        return self.stage.run(on("node0", command), **variables)


# Submits a job, waits for its end, prints its log $0, and ends with its status. (sbatch --wait looks
# every ten seconds.)
SUBMIT = """
number=$(sbatch --parsable --output="$0" "$@") || exit
while job=$(scontrol --oneliner show job "$number") && echo "$job" | grep -Eq " JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING) "; do
  sleep 0.05
done
cat "$0"
status=${job#* ExitCode=}
exit "${status%%:*}"
"""


class Sbatch(SlurmCase):
    def launch(self, size, threshold, *flags: str):
        log = self.stage.folder / "batch"
        log.unlink(missing_ok=True)
        run = self.start(["sh", "-c", SUBMIT, log, "--nodes=3", *flags, EXAMPLES / "slurm.sbatch", "srun", "echo", JOB], BYTES=size, MIN_BANDWIDTH=threshold)
        run.logs.append(log)
        return run

    def test_passed(self):
        self.assertIn(JOB, self.check_passed(3))

    def test_missed(self):
        statuses, output = self.check_missed()
        self.assertEqual(statuses, [1])
        self.assertNotIn(JOB, output)

    def test_killed(self):
        self.assertEqual(self.check_killed(3, says=f"1: rondo bench: rank 1: .*lost rank {VICTIM}"), [128 + 9])

    def test_one_rank_a_host_whatever_the_job_asks(self):
        for flags, tasks in (["--ntasks-per-node=2"], 6), (["--ntasks=5"], 5), (["--ntasks=3", "--cpus-per-task=4"], 3):
            with self.subTest(flags=flags):
                output = self.check_run(self.launch(SHORT, GOOD, *flags), 3)
                self.assertIn("rank 2 on node2", output)
                self.assertEqual(output.count(JOB), tasks, output)


class Srun(SlurmCase):
    def check_kinds(self, kinds: tuple[str, ...], flags: list[str], **variables: str) -> None:
        for kind in kinds:
            with self.subTest(kind=kind):
                self.check_run(self.start(["srun", f"--mpi={kind}", *flags, *QUICK], **variables), 4 if flags == TWO_EACH else 3)

    def test_a_secret_alone(self):
        self.check_kinds(("none", "pmi2", "pmix"), SPREAD, **SECRET)

    def test_two_ranks_on_the_first_host(self):
        self.check_kinds(("none", "pmi2", "pmix"), TWO_EACH, **SECRET)

    def test_nothing_is_set(self):
        for flags in SPREAD, TWO_EACH:
            self.check_kinds(("pmi2", "pmix"), flags)

    def test_mpirun_in_an_allocation(self):
        """mpirun starts its daemons with srun, so that ranks see the variables of both."""
        for mpirun in [OPENMPI, "--bind-to", "none"], [MPICH]:
            if shutil.which(mpirun[0]):
                with self.subTest(mpirun=mpirun[0]):
                    self.check_run(self.start(["salloc", "--quiet", *SPREAD, *mpirun, *QUICK], **ROOT), 3)


class Torch(SlurmCase):
    PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("rondo")
value = torch.ones(1)
dist.all_reduce(value)
print("the sum is", int(value), flush=True)
dist.destroy_process_group()
"""

    def test_the_lines_of_the_page(self):
        """The lines of docs/launchers.md for PyTorch under srun, in an allocation of two nodes."""
        found = subprocess.run(FIND, capture_output=True, text=True)
        package = pathlib.Path(self.stage.program).parents[1] / "python"
        if found.returncode != 0 or not list(package.glob("rondo/torch/_c.*.so")):
            self.skipTest("there is no PyTorch with the backend to test with: ./dev setup --torch")
        page = (EXAMPLES.parents[1] / "docs" / "launchers.md").read_text()
        lines = re.search(r"\*\*PyTorch under srun\*\*(?:.+\n)+\n((?: {4}.+\n)+)", page)[1]
        program = self.stage.folder / "train.py"
        program.write_text(self.PROGRAM)
        lines = lines.replace("python train.py", f"{found.stdout.strip()}/bin/python {program}").replace("node=4", "node=2")
        with self.start(["salloc", "--quiet", *TWO_EACH, "bash", "-euc", lines], OMP_NUM_THREADS="1",
                        PYTHONPATH=f"{package}:{HERE.parent / 'torch' / 'site'}") as run:
            self.assertEqual(run.finish(), [0], run.output)
            self.assertEqual(run.output.count("the sum is 4"), 4, run.output)


if __name__ == "__main__":
    if lacks_slurm():
        skip(lacks_slurm())
    main()
