# SPDX-License-Identifier: Apache-2.0
"""Machines in software that run Debian's kernel, for what the kernel of this machine lacks: RDMA
(Soft-RoCE), and networks that lose packets.

    with Guest(image, folder) as guest:
        print(guest.check("two_devices && ibv_devinfo"))

    with two_guests(image, folder) as (one, other): ...

A script is one of busybox's sh, with the steps of steps.sh, and runs as root. See init.sh for the
other side.
"""

import base64
import contextlib
import itertools
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from image import Image, tool

MEMORY = 3072  # MiB
BOOT_SECONDS = 90
# How long a guest may take to tell that a script has ended: longer only when its kernel hangs.
GRACE_SECONDS = 30
# Hardware virtualization is not used: a machine that has /dev/kvm may still not boot this kernel. A
# newer processor is slower in software: Soft-RoCE moves half as much with `max`.
MACHINE = ["-machine", "q35", "-cpu", "Nehalem", "-accel", "tcg,thread=multi", "-display", "none", "-monitor", "none", "-no-reboot",
           "-serial", "stdio"]
# A defect that the kernel finds in itself ends the guest. On a busy machine the kernel would come to
# distrust the clock of the processor, and to read the time would take a system call.
KERNEL_ARGUMENTS = "console=ttyS0 quiet loglevel=0 panic=-1 oops=panic preempt=full mitigations=off tsc=reliable"

ANSWER = re.compile(r"@(\d+)([:=])(.*)")


class GuestError(Exception):
    """Raised when a guest has ended or does not answer, or when a script fails that must not."""


class Script:
    """A script that runs, or has run, in a guest."""

    def __init__(self, name: str, limit: float):
        self.name = name
        self.limit = limit
        self.started = time.monotonic()
        self.seconds = 0.0
        self.lines: list[str] = []
        self.status: int | None = None

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def ran_out_of_time(self) -> bool:
        return self.status == 137 and self.seconds >= self.limit


class Guest:
    """The constructor boots the guest; close() switches it off. Its console is in
    `folder`/guestNUMBER.log. `network` is one of two connected sockets; the other is that of another
    guest, with another number."""

    def __init__(self, image: Image, folder: Path, *, number: int = 0, memory: int = MEMORY, processors: int = 2,
                 network: socket.socket | None = None):
        self.name = f"guest{number}"
        self.log = folder / f"{self.name}.log"
        self._numbers = itertools.count()
        self._scripts: dict[str, Script] = {}
        self._changed = threading.Condition()
        self._ready = self._ended = False
        command = [tool("setpriv"), "--pdeathsig", "KILL", tool("qemu-system-x86_64"), *MACHINE, "-m", str(memory),
                   "-smp", str(processors), "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
                   "-append", f"{KERNEL_ARGUMENTS} hostname={self.name}", "-nic", "none"]
        if network:
            command[-2:] = ["-netdev", f"socket,id=network,fd={network.fileno()}",
                            "-device", f"virtio-net-pci,netdev=network,mac=52:54:00:00:00:{number:02x}"]
        self._qemu = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      pass_fds=[network.fileno()] if network else [])
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._qemu.kill()
        self._qemu.wait()
        self._reader.join()
        self._qemu.stdin.close()
        self._qemu.stdout.close()

    def start(self, script: str, seconds: float = 30, name: str = "") -> Script:
        """Starts a script that is killed after this time, with all that it has started."""
        self._wait(lambda: self._ready, BOOT_SECONDS, "boot")
        number = str(next(self._numbers))
        started = self._scripts[number] = Script(name or script, seconds)
        request = f"{number} {seconds:g} {base64.b64encode(script.encode()).decode()}\n"
        try:
            self._qemu.stdin.write(request.encode())
            self._qemu.stdin.flush()
        except BrokenPipeError:
            pass  # finish() tells it
        return started

    def finish(self, script: Script) -> Script:
        """Waits until the script has ended."""
        left = script.started + script.limit + GRACE_SECONDS - time.monotonic()
        self._wait(lambda: script.status is not None, left, script.name)
        return script

    def run(self, script: str, seconds: float = 30, name: str = "") -> Script:
        return self.finish(self.start(script, seconds, name))

    def check(self, script: str, seconds: float = 30) -> str:
        """Returns the output of a script that must end with status 0."""
        return self.finish_well(self.start(script, seconds))

    def finish_well(self, script: Script) -> str:
        if self.finish(script).status != 0:
            raise GuestError(f"{self.name}: '{script.name}' ended with status {script.status}: {script.output}")
        return script.output

    def _wait(self, condition, seconds: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self._ended, max(seconds, 0)):
                raise GuestError(f"{self.name} does not answer since '{what}' (see {self.log}): {self._last_words()}")
            if not condition():
                raise GuestError(f"{self.name} ended in '{what}' (see {self.log}): {self._last_words()}")

    def _last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def _read(self) -> None:
        with open(self.log, "wb", buffering=0) as log:
            for line in self._qemu.stdout:
                log.write(line)
                with self._changed:
                    self._take(line.decode(errors="replace").rstrip("\r\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, line: str) -> None:
        if line == "@ready":
            self._ready = True
        elif answer := ANSWER.fullmatch(line):
            number, mark, text = answer.groups()
            script = self._scripts[number]
            if mark == ":":
                script.lines.append(text)
            else:
                script.seconds = time.monotonic() - script.started
                script.status = int(text)


@contextlib.contextmanager
def two_guests(image: Image, folder: Path, memory: int = MEMORY // 2) -> Iterator[tuple[Guest, Guest]]:
    """Two hosts with a cable between them: each has the interface eth0, and its device rxe0, with
    the addresses 10.78.0.1 and 10.78.0.2."""
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair()]
        guests = [stack.enter_context(Guest(image, folder, number=number, memory=memory, processors=1, network=end))
                  for number, end in enumerate(ends)]
        scripts = [guest.start(f"rdma_device rxe0 eth0 10.78.0.{number + 1}") for number, guest in enumerate(guests)]
        for guest, script in zip(guests, scripts):
            guest.finish_well(script)
        yield guests[0], guests[1]
