# SPDX-License-Identifier: Apache-2.0
"""Real daemons on the hosts of a stage: sshd, and Slurm with munge. Their files are in the stage's
own /etc and /run; the machine's daemons are never touched."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import time

from stage import MARK, Stage, end_with_parent, on

SSHD, KEYGEN = "/usr/sbin/sshd", "ssh-keygen"
SLURM = ["/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "/usr/bin/srun"]
READY = 60  # seconds in which a daemon answers, also on a busy machine

SSHD_CONFIG = f"""\
HostKey /etc/ssh/host_key
PidFile none
AuthorizedKeysFile /etc/ssh/user_key.pub
PasswordAuthentication no
StrictModes no
UseDNS no
PrintMotd no
MaxStartups 100
AcceptEnv {MARK}
SetEnv PATH={{programs}}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
"""
# The test finds what a launcher has started by the mark. Nothing else is passed on.
SSH_CONFIG = f"""\
Host *
  IdentityFile /etc/ssh/user_key
  GlobalKnownHostsFile /etc/ssh/known_hosts
  UserKnownHostsFile none
  BatchMode yes
  SendEnv {MARK}
"""
SLURM_CONFIG = """\
ClusterName=stage
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
ReturnToService=2
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/%n
TmpFS=/run/slurm/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/%n.pid
SlurmdParameters=config_overrides
KillWait=2
NodeName={nodes} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
"""


def lacks_root() -> str:
    """Returns why there can be no daemons here, or nothing. Some of them run as other users, which root
    of a user namespace does not have."""
    if os.geteuid() == 0 and int(pathlib.Path("/proc/self/uid_map").read_text().split()[2]) >= 1 << 16:
        return ""
    return "daemons of a host (sshd, slurmd, munged) need the machine's root"


def lacks_ssh() -> str:
    there = os.path.exists(SSHD) and shutil.which("ssh")
    return lacks_root() or ("" if there else "there is no sshd here (Debian: openssh-server, openssh-client)")


def lacks_slurm() -> str:
    there = all(map(os.path.exists, SLURM))
    return lacks_root() or ("" if there else "there is no Slurm here (Debian: slurmctld, slurmd, slurm-client, munge)")


class Daemons:
    """Daemons, each in the foreground, that end with this process at the latest."""

    def __init__(self, stage: Stage):
        self._stage = stage
        self._running: list[subprocess.Popen] = []
        self._logs: list[pathlib.Path] = []

    def start(self, host: str, command: list) -> None:
        log = self._stage.folder / f"{pathlib.Path(command[0]).name}-{host}.log"
        self._logs.append(log)
        with open(log, "wb") as output:
            self._running.append(subprocess.Popen(on(host, command), env=self._stage.variables(), stdin=subprocess.DEVNULL, stdout=output,
                                                  stderr=output, preexec_fn=end_with_parent))

    def until(self, host: str, command: list) -> None:
        """Waits until this command ends well there."""
        deadline = time.monotonic() + READY
        while (done := subprocess.run(on(host, command), env=self._stage.variables(), capture_output=True, text=True,
                                      timeout=READY)).returncode != 0:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._running):
                logs = "".join(f"{log.name}:\n{log.read_text(errors='replace')}" for log in self._logs)
                self.close()
                raise AssertionError(f"{command}: {done.stderr}\n{logs}")
            time.sleep(0.05)

    def close(self) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        self._running.clear()


def start_ssh(stage: Stage) -> Daemons:
    """An sshd on each host, and one key with which root of any of them reaches all."""
    folder = pathlib.Path("/etc/ssh")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.makedirs("/run/sshd", exist_ok=True)
    for name in "host_key", "user_key":
        subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    kind, key, *_ = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"* {kind} {key}\n")
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(programs=stage.folder / "bin"))
    (folder / "ssh_config").write_text(SSH_CONFIG)
    daemons = Daemons(stage)
    for host in stage.hosts:
        daemons.start(host, [SSHD, "-D", "-e"])
    for host in stage.hosts:
        daemons.until(stage.names[0], ["ssh", host, "true"])
    return daemons


def start_slurm(stage: Stage) -> Daemons:
    """slurmctld on the first host, and a slurmd on each. All use one munged: its socket is a file,
    which the hosts share."""
    for name in "/run/munge", "/run/slurm", "/run/slurm/state", "/etc/munge", "/etc/slurm":
        os.makedirs(name, mode=0o755, exist_ok=True)
    key = pathlib.Path("/etc/munge/munge.key")
    key.unlink(missing_ok=True)
    key.touch(0o400)
    key.write_bytes(os.urandom(128))
    for host in stage.hosts:
        os.mkdir(f"/run/slurm/{host}")
    pathlib.Path("/etc/slurm/slurm.conf").write_text(SLURM_CONFIG.format(first=stage.names[0], nodes=",".join(stage.names)))
    # Nothing here uses control groups. The plugin of version 2 would look for them.
    pathlib.Path("/etc/slurm/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    daemons = Daemons(stage)
    daemons.start(stage.names[0], ["/usr/sbin/munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}",
                                   "--pid-file=/run/munge/pid", "--seed-file=/run/munge/seed", "--log-file=/run/munge/log"])
    daemons.until(stage.names[0], ["munge", "--no-input", "--output=/dev/null"])
    daemons.start(stage.names[0], ["/usr/sbin/slurmctld", "-D"])
    for host in stage.hosts:
        daemons.start(host, ["/usr/sbin/slurmd", "-D"])
    daemons.until(stage.names[0], [SLURM[-1], f"--nodes={len(stage.hosts)}", "--immediate=1", "true"])
    return daemons
