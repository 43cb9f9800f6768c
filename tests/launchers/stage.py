# SPDX-License-Identifier: Apache-2.0
"""Named hosts on this machine for the examples of launchers: the network namespaces of
tests/hosts/namespaces.py, in a mount namespace of this process, so that they can have what examples
name: host names, `ip netns exec NAME`, files with secrets. Each host has an /etc/hosts as Debian makes
it: there its own name is 127.0.1.1, and only elsewhere the address of its link.

    enter()                               # once, first: starts this program again in that namespace
    stage = Stage(["node0", "node1"])
    run = stage.run(["bash", "examples/launchers/run-on.sh", ...])
    run.finish()
"""

import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hosts"))

from namespaces import SKIPPED, Network, Unable, end_with_parent  # noqa: E402
from ranks import clean_environment  # noqa: E402

EXAMPLES = HERE.parent.parent / "examples" / "launchers"
SECONDS = 120  # no run here takes this long: a longer one hangs
RATE = "1gbit"
# Marks all processes of a run, whoever has started them.
MARK = "RONDO_TEST_LAUNCH"
INSIDE = "RONDO_TEST_STAGE"
SECRETS = "/run/secrets"
# Says what a rank is called by those that start it. The first that is set counts.
RANKS = ["RONDO_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"]


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def enter() -> None:
    """Starts this program again in a mount namespace of its own; without root, as root of a user
    namespace. Ends it with status 77 where neither is possible."""
    if INSIDE not in os.environ:
        unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user", "--net"])
        if shutil.which("unshare") is None:
            skip("unshare is not installed (Debian: util-linux)")
        if subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/run"], stderr=subprocess.DEVNULL).returncode != 0:
            skip("cannot make a mount namespace; this needs root, or user namespaces for ordinary users")
        os.environ[INSIDE] = "1"
        os.execvp(unshare[0], [*unshare, *sys.orig_argv])
    try:
        Network(2, [RATE]).close()
    except Unable as reason:
        skip(str(reason))


def alias(host: str, name: str) -> None:
    """Gives a host of the stage one more name, the same everywhere."""
    address = next(line.split()[0] for line in pathlib.Path("/etc/hosts").read_text().splitlines() if line.split()[1] == host)
    for table in pathlib.Path("/etc").glob("netns/*/hosts"):
        if f" {name}\n" not in table.read_text():
            with open(table, "a") as names:
                names.write(f"{address} {name}\n")


def mount(*arguments) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


class Stage:
    """Hosts with these names. Link, address and rate of each are those of Network.

    program: the rondo program, which lies in the PATH of all of them. stand_ins: whether the stand-ins
    do, too."""

    def __init__(self, names: list[str], program: str, stand_ins: bool = True):
        self.names = names
        self._stand_ins = f"{HERE / 'stand_ins'}:" if stand_ins else ""
        self._folder = tempfile.TemporaryDirectory(prefix="rondo-launchers-")
        self.folder = pathlib.Path(self._folder.name)
        self._network = Network(len(names), [RATE])
        self.hosts = dict(zip(names, self._network.hosts))
        mount("-t", "tmpfs", "tmpfs", "/run")
        for name in "/run/netns", SECRETS:
            os.mkdir(name)
        # A copy of /etc, which the hosts may change. An ordinary user cannot read or own all of it.
        subprocess.run(["cp", "-a", "/etc", "/run/etc"], stderr=subprocess.DEVNULL)
        mount("--bind", "/run/etc", "/etc")
        for name, host in self.hosts.items():
            pathlib.Path("/run/netns", name).touch()
            mount("--bind", host.path, f"/run/netns/{name}")
            # `ip netns exec` puts the files of this folder over those of /etc.
            own = pathlib.Path("/etc/netns", name, "hosts")
            own.parent.mkdir(parents=True)
            own.write_text(self._names(name))
        pathlib.Path("/etc/hosts").write_text(self._names(""))
        # No host reaches a name server, and some programs would wait for one.
        pathlib.Path("/etc/nsswitch.conf").write_text("hosts: files\npasswd: files\ngroup: files\n")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "rondo").symlink_to(os.path.abspath(program))
        (self.folder / "user").mkdir(0o700)
        self.program = os.path.realpath(program)

    def _names(self, here: str) -> str:
        """/etc/hosts of a host, or of none."""
        return "127.0.0.1 localhost\n" + "".join(f"{'127.0.1.1' if name == here else host.address()} {name}\n"
                                                 for name, host in self.hosts.items())

    def close(self) -> None:
        self._end_all()
        subprocess.run(["umount", "--lazy", "/etc", "/run"], check=True)
        self._network.close()
        self._folder.cleanup()

    def _end_all(self) -> None:
        """Ends what still runs on the hosts: daemons leave helpers that have no mark."""
        own = {os.stat(host.path).st_ino for host in self.hosts.values()}
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            left = []
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if os.stat(f"/proc/{entry}/ns/net").st_ino in own:
                        left.append(int(entry))
                        os.kill(left[-1], signal.SIGKILL)
                except OSError:  # it has ended
                    continue
            if not left:
                return
            time.sleep(0.02)

    def secret(self, path: str) -> None:
        """Writes a secret to a file under /run/secrets."""
        file = pathlib.Path(path)
        assert file.is_relative_to(SECRETS), path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)
        file.write_text(secrets.token_hex(32) + "\n")

    def variables(self, **changes: str) -> dict[str, str]:
        return clean_environment(PATH=f"{self.folder / 'bin'}:{self._stand_ins}{os.environ['PATH']}",
                                 XDG_RUNTIME_DIR=str(self.folder / "user")) | changes

    def run(self, *commands: list, **variables: str) -> "Run":
        """Starts these commands together, as one run."""
        run = Run(self)
        for command in commands:
            run.start(command, **variables)
        return run


def on(host: str, command: list) -> list[str]:
    """The command that runs `command` on a host of the stage, which also gets its name there."""
    return ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host, *map(str, command)]


class Run:
    """What a launcher has started, and all that comes from it."""

    def __init__(self, stage: Stage):
        self._stage = stage
        self._mark = secrets.token_hex(8)
        self._output = open(stage.folder / f"output-{self._mark}", "w+b")
        self._processes: list[subprocess.Popen] = []
        self.logs: list[pathlib.Path] = []  # files to which this run writes, besides its output

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def start(self, command: list, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen(list(map(str, command)), env=self._stage.variables(**variables) | {MARK: self._mark},
                                   stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, preexec_fn=end_with_parent)
        self._processes.append(process)
        return process

    @property
    def output(self) -> str:
        """What all of them have written so far, on both streams."""
        return pathlib.Path(self._output.name).read_text(errors="replace")

    def until(self, condition, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}\n{self.output}")
            time.sleep(0.05)

    def _has_said(self, text: str) -> bool:
        return text in self.output or any(log.exists() and text in log.read_text(errors="replace") for log in self.logs)

    def _has_ended(self) -> bool:
        return all(process.poll() is not None for process in self._processes)

    def until_said(self, text: str, seconds: float = SECONDS) -> None:
        self.until(lambda: self._has_said(text) or self._has_ended(), seconds, f"{text!r} is written")
        if not self._has_said(text):
            raise AssertionError(f"ended without {text!r}\n{self.output}")

    def finish(self, seconds: float = SECONDS) -> list[int]:
        """Waits for the end of the commands, then of everything that they have started. Returns the
        exit statuses of the commands."""
        statuses = self.end(seconds)
        self.until(lambda: not self._pids(), 30, "all that the launcher has started ends")
        return statuses

    def end(self, seconds: float = SECONDS) -> list[int]:
        """Waits for the end of the commands alone, and returns their exit statuses."""
        self.until(self._has_ended, seconds, "the launcher ends")
        return [process.returncode for process in self._processes]

    def _pids(self) -> dict[int, dict[str, str]]:
        """The processes of this run that still live, with their variables."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                text = pathlib.Path("/proc", entry, "environ").read_bytes()
            except OSError:
                continue
            variables = dict(part.split("=", 1) for part in text.decode(errors="replace").split("\0") if "=" in part)
            if variables.get(MARK) == self._mark:
                found[int(entry)] = variables
        return found

    def ranks(self) -> dict[int, int]:
        """The process of each rank of rondo."""
        ranks = {}
        for pid, variables in self._pids().items():
            try:
                program = os.readlink(f"/proc/{pid}/exe")
            except OSError:
                continue
            names = [name for name in RANKS if name in variables]
            if program == self._stage.program and names:
                ranks[int(variables[names[0]])] = pid
        return ranks

    def kill(self, rank: int) -> None:
        os.kill(self.ranks()[rank], signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Sends a signal to the commands, not to what they have started."""
        for process in self._processes:
            process.send_signal(number)

    def close(self) -> None:
        for pid in self._pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self._processes:
            process.wait()
        self._output.close()
