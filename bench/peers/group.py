# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of one library, sends them commands, and stops all of them."""

import contextlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from launch import Launch


class Failure(Exception):
    """The library did not do what it was told. The text gives the reason for the table's end."""


class Rank:
    """The connection to one rank and a descriptor of its process, which may be a child of a
    launcher. Raises Failure if the process has ended, and its launcher knows."""

    def __init__(self, connection: socket.socket, seconds: float):
        self.connection = connection
        self.connection.settimeout(seconds)
        self.received = b""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        try:
            self.process = os.pidfd_open(struct.unpack("3i", credentials)[0])
        except ProcessLookupError:
            connection.close()
            raise Failure("has ended") from None

    def take_line(self) -> str | None:
        line, end, rest = self.received.partition(b"\n")
        if not end:
            return None
        self.received = rest
        return line.decode()


class Group:
    """The ranks of one job. Every wait has a deadline. After a Failure the caller can only
    stop() the group."""

    def __init__(self, name: str, ranks: int, folder: Path, seconds: float):
        self.name = name
        self.algorithms: list[str] = []
        self.seconds = seconds
        self.control = folder / "control"
        self._log = folder / "log"
        self._size = ranks
        self._ranks: list[Rank] = []
        self._launchers: list[subprocess.Popen] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.control))
        self._listener.listen(ranks)

    def start(self, launches: list[Launch]) -> None:
        """Starts the processes without waiting for them, each in a session of its own: Linux
        shares processors among sessions (autogroup) before it does among processes."""
        with self._log.open("wb") as log:
            for launch in launches:
                environment = os.environ | launch.environment
                self._launchers.append(
                    subprocess.Popen(launch.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, pass_fds=launch.descriptors))
        for descriptor in {one for launch in launches for one in launch.descriptors}:
            os.close(descriptor)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.seconds
        while len(self._ranks) < self._size:
            if any(launcher.poll() not in (None, 0) for launcher in self._launchers):
                raise Failure(f"does not start: {self._last_words()}")
            self._listener.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                self._accept()
            if time.monotonic() > deadline:
                raise Failure(f"does not start in {self.seconds:g} s")
        answers = [answer.split() for answer in self._answers(deadline, "start")]
        if sorted(int(words[1]) for words in answers) != list(range(self._size)):
            raise Failure(f"started as something else than {self._size} ranks of one job")
        self.algorithms = answers[0][3:]

    def command(self, line: str) -> list[str]:
        """Sends the line to all ranks and returns their answers, in any order. Then sends
        "rest"."""
        deadline = time.monotonic() + self.seconds
        self._tell(line)
        answers = self._answers(deadline, "finish")
        self._tell("rest")
        return answers

    def stop(self) -> None:
        """Ends all processes: by "quit", then by closing the connections, then by signals."""
        with contextlib.suppress(Failure):
            self._tell("quit")
        if not self._ended(1):
            for rank in self._ranks:
                with contextlib.suppress(OSError):
                    rank.connection.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for force in (signal.SIGTERM, signal.SIGKILL):
            if self._ended(2):
                break
            for launcher in self._launchers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(launcher.pid, force)
            for rank in self._ranks:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank.process, force)
        self._ended(2)
        for rank in self._ranks:
            rank.connection.close()
            os.close(rank.process)
        self._ranks.clear()

    def _accept(self) -> None:
        try:
            self._ranks.append(Rank(self._listener.accept()[0], self.seconds))
        except Failure:
            raise Failure(f"does not start: {self._last_words()}") from None

    def _tell(self, line: str) -> None:
        for rank in self._ranks:
            try:
                rank.connection.sendall(line.encode() + b"\n")
            except OSError:
                raise Failure(f"ended: {self._last_words()}") from None

    def _answers(self, deadline: float, what: str) -> list[str]:
        answers = []
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                selector.register(rank.connection, selectors.EVENT_READ, rank)
            while len(answers) < self._size:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise Failure(f"does not {what} in {self.seconds:g} s")
                for key, _ in ready:
                    answer = self._receive(key.data)
                    if answer is not None:
                        answers.append(answer)
                        selector.unregister(key.fileobj)
        return answers

    def _receive(self, rank: Rank) -> str | None:
        try:
            chunk = rank.connection.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            raise Failure(f"ended: {self._last_words()}")
        rank.received += chunk
        answer = rank.take_line()
        if answer is not None and answer.startswith("failed"):
            raise Failure(answer)
        return answer

    def _ended(self, seconds: float) -> bool:
        """Waits at most `seconds`. Returns whether all processes have ended."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                selector.register(rank.process, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    return False
                for key, _ in ready:
                    selector.unregister(key.fileobj)
        for launcher in self._launchers:
            try:
                launcher.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        said = [line for line in lines if any(c.isalnum() for c in line)]
        if said:
            # The launcher repeats that a rank has ended, and not why.
            return next((line for line in reversed(said) if not line.startswith("rondo run: ")), said[-1])
        statuses = [launcher.poll() for launcher in self._launchers]
        return next((f"exit status {status}" for status in statuses if status), "without a message")
