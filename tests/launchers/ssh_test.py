# SPDX-License-Identifier: Apache-2.0
"""run-on.sh and both mpirun over real sshd, on hosts whose /etc/hosts is Debian's. With the variables
that the examples set, and with none at all.
Usage: ssh_test.py PATH_OF_RONDO [unittest arguments]"""

import shutil
import unittest

from case import QUICK, ROOT, VICTIM, LauncherCase, bench, main
from daemons import lacks_ssh, start_ssh
from mpirun_test import MPICH, OPENMPI
from run_on_test import Ends
from stage import EXAMPLES, Run, on, skip

SECRET = {"RONDO_SECRET": "a secret that every rank has", "RONDO_RENDEZVOUS": "tcp://node0:29500"}


class SshCase(LauncherCase):
    hosts = ["node0", "node1", "node2"]
    daemons = [start_ssh]

    def start(self, command: list, **variables: str) -> Run:
        return self.stage.run(on("node0", command), **variables)


def lose(stage, *names: str) -> None:
    """Packets of the first host to these go nowhere from now on."""
    stage.hosts["node0"].set_up("ip", [f"neigh replace {stage.hosts[name].address()} lladdr 02:00:00:00:00:01 dev eth0 nud permanent"
                                       for name in names])


class Loop(SshCase):
    def loop(self, *program: str, hosts: str = "node0,node1,node2", **variables: str) -> Run:
        return self.start([EXAMPLES / "run-on.sh", hosts, *program], **variables)


class RunOn(Ends, Loop):
    def launch(self, size, threshold):
        return self.loop(*bench(size, threshold))

    def test_passed(self):
        self.assertIn("on node2", self.check_passed(3))

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        self.assertEqual(self.check_killed(3, says=f"run-on.sh: rank {VICTIM} on node{VICTIM} ended with status 137\n"), [137])

    def test_two_ranks_on_the_first_host(self):
        self.check_run(self.loop(*QUICK, hosts="node0,node0,node1,node1"), 4)


class Silent(Loop):
    """Both cases wait for timeouts of ssh, so they run at the same time."""

    def test_a_silent_host(self):
        with self.loop("sh", "-c", "echo started; exec sleep 1000", hosts="node1") as lost:
            lost.until_said("started")
            lose(self.stage, "node1", "node2")
            with self.loop("true", hosts="node0,node2") as never:
                for run, rank, host in (never, 1, "node2"), (lost, 0, "node1"):
                    run.until_said(f"run-on.sh: rank {rank} on {host} ended with status 255, or the host was not reached", 60)


class Mpirun:
    """The cases of Open MPI and MPICH. command(ranks on each host, variables) starts ranks with one."""

    def test_passed(self):
        self.assertIn("on node2", self.check_passed(3))

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_two_ranks_on_the_first_host(self):
        self.check_placements((2, 2), (2, 1), **SECRET)

    def test_nothing_is_set(self):
        self.check_placements((1, 1, 1), (2, 2), (1, 2, 1))

    def test_a_limit_ends_what_a_silent_host_hangs(self):
        """`timeout` as docs/launchers.md has it ends mpirun; ssh itself would wait for minutes."""
        lose(self.stage, "node2")
        try:
            with self.start(["timeout", "--kill-after=5", "5", *self.command((1, 1, 1), []), *bench()], **ROOT) as run:
                self.assertIn(run.end(60), ([124], [128 + 9], [-9]), run.output)
                run.until(lambda: not run.ranks(), 30, "the ranks end")
        finally:
            self.stage.hosts["node0"].set_up("ip", [f"neigh del {self.stage.hosts['node2'].address()} dev eth0"])

    def check_placements(self, *placements: tuple[int, ...], **variables: str) -> None:
        for placement in placements:
            with self.subTest(placement=placement):
                command = self.command(placement, list(variables)) + QUICK
                self.check_run(self.start(command, **ROOT, **variables), sum(placement))


@unittest.skipUnless(shutil.which(OPENMPI), f"{OPENMPI} is not installed (Debian: openmpi-bin)")
class OpenMpi(Mpirun, SshCase):
    def launch(self, size, threshold):
        return self.start([EXAMPLES / "openmpi.sh", ",".join(self.hosts), *bench(size, threshold)[2:]], MPIRUN=OPENMPI, **ROOT)

    def command(self, placement: tuple[int, ...], names: list[str]) -> list[str]:
        hosts = ",".join(f"{host}:{ranks}" for host, ranks in zip(self.hosts, placement))
        return [OPENMPI, "--host", hosts, "--bind-to", "none", *(word for name in names for word in ("-x", name))]

    def test_killed(self):
        [status] = self.check_killed(3, says=f"rank {VICTIM} .*on node node{VICTIM} exited on signal 9|lost rank {VICTIM}")
        self.assertIn(status, (3, 128 + 9))


@unittest.skipUnless(shutil.which(MPICH), f"{MPICH} is not installed (Debian: mpich)")
class Mpich(Mpirun, SshCase):
    def launch(self, size, threshold):
        return self.start([EXAMPLES / "mpich.sh", ",".join(self.hosts), *bench(size, threshold)[2:]], MPIEXEC=MPICH)

    def command(self, placement: tuple[int, ...], names: list[str]) -> list[str]:
        hosts = ",".join(f"{host}:{ranks}" for host, ranks in zip(self.hosts, placement))
        return [MPICH, "-hosts", hosts, "-n", str(sum(placement)), *(["-genvlist", ",".join(names)] if names else [])]

    def test_killed(self):
        self.check_killed(3, says=f"RUNNING AT node{VICTIM}|lost rank {VICTIM}")

    def test_a_port_in_place_of_a_descriptor(self):
        """Hydra names the port of its proxy, and ranks connect to it."""
        command = self.command((2, 2), [])
        self.check_run(self.start([command[0], "-pmi-port", *command[1:], *QUICK]), 4)


if __name__ == "__main__":
    if lacks_ssh():
        skip(lacks_ssh())
    main()
