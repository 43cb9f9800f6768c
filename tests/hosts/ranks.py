# SPDX-License-Identifier: Apache-2.0
"""The ranks of one job on the hosts of a Network: where each runs, its output, and how it ended."""

import os
import re
import secrets
import selectors
import subprocess
import time

from namespaces import Network, end_with_parent

LAUNCHER = re.compile(r"^(RONDO_|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_\w+)$")
PORT = 29500


def by_host(hosts: int, each: int) -> list[int]:
    """The host of every rank: 0 0 1 1."""
    return [rank // each for rank in range(hosts * each)]


def in_turn(hosts: int, each: int) -> list[int]:
    """The host of every rank: 0 1 0 1."""
    return [rank % hosts for rank in range(hosts * each)]


def clean_environment(**changes: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not LAUNCHER.match(name)} | changes


class Rank:
    def __init__(self, process: subprocess.Popen):
        self.process = process
        self.text = {process.stdout: b"", process.stderr: b""}

    @property
    def output(self) -> str:
        return self.text[self.process.stdout].decode(errors="replace")

    @property
    def errors(self) -> str:
        return self.text[self.process.stderr].decode(errors="replace")

    @property
    def status(self) -> int | None:
        return self.process.poll()


class Job:
    """The constructor starts all ranks. None is left after close()."""

    def __init__(self, network: Network, placement: list[int], command: list, *, link: int = 0, per_rank=lambda rank: {},
                 **environment: str):
        """per_rank(rank) gives the variables of one rank; None removes a variable there."""
        address = network.hosts[placement[0]].address(link)
        common = clean_environment(RONDO_SIZE=str(len(placement)), RONDO_RENDEZVOUS=f"tcp://{address}:{PORT}",
                                   RONDO_SECRET=secrets.token_hex(16)) | environment
        self.ranks: list[Rank] = []
        self._selector = selectors.DefaultSelector()
        try:
            for rank, host in enumerate(placement):
                changed = common | {"RONDO_RANK": str(rank)} | per_rank(rank)
                variables = {name: value for name, value in changed.items() if value is not None}
                self._start(network.hosts[host].command(command), variables)
        except BaseException:
            self.close()
            raise

    def _start(self, command: list[str], variables: dict[str, str]) -> None:
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=end_with_parent)
        self.ranks.append(Rank(process))
        for pipe in (process.stdout, process.stderr):
            self._selector.register(pipe, selectors.EVENT_READ, self.ranks[-1])

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.process.kill()
            rank.process.wait()
            rank.process.stdout.close()
            rank.process.stderr.close()
        self._selector.close()

    def until(self, condition, seconds: float, what: str) -> None:
        """Reads the output of the ranks until condition() holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}\n{self.story()}")
            self._read(0.05)

    def until_said(self, word: str, seconds: float = 60) -> None:
        """Waits until every rank has written this word, or has ended."""
        self.until(lambda: all(word in rank.output or rank.status is not None for rank in self.ranks), seconds, f"the ranks say {word!r}")

    def finish(self, seconds: float = 120, but: tuple[int, ...] = ()) -> list[Rank]:
        """Waits until all ranks except those in `but` have ended and their output is read. Returns
        them."""
        chosen = [rank for number, rank in enumerate(self.ranks) if number not in but]
        open_pipes = self._selector.get_map
        self.until(lambda: all(rank.status is not None and not any(pipe in open_pipes() for pipe in rank.text) for rank in chosen),
                   seconds, "all ranks end")
        return chosen

    def story(self) -> str:
        return "\n".join(f"rank {number} (status {rank.status}): {rank.output.strip()} {rank.errors.strip()}"
                         for number, rank in enumerate(self.ranks))

    def _read(self, seconds: float) -> None:
        if not self._selector.get_map():  # all have closed their output, and only have to end
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            chunk = os.read(key.fd, 1 << 16)
            if chunk:
                key.data.text[key.fileobj] += chunk
            else:
                self._selector.unregister(key.fileobj)
