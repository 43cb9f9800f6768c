# SPDX-License-Identifier: Apache-2.0
"""The jobs that are measured: Rondo with one or more settings, and Gloo. All are started, and
one works at a time."""

import argparse
import itertools
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from group import Failure, Group
from launch import Launch
from namespaces import Network
from rounds import Candidate

FIRST_PORT = 29500
INTERFACE = "eth0"  # Gloo uses one interface only


@dataclass
class Variant:
    """Rondo with these environment variables."""

    name: str
    environment: dict[str, str]

    @staticmethod
    def parse(text: str) -> "Variant":
        name, _, rest = text.rpartition(":") if ":" in text.partition("=")[0] else ("", "", text)
        environment = {}
        for item in rest.split(",") if rest else []:
            variable, equals, value = item.partition("=")
            if not equals:
                raise argparse.ArgumentTypeError(f"{item!r} is no VARIABLE=VALUE")
            environment[variable] = value
        return Variant(name or rest or "rondo", environment)


class Jobs:
    """Starts the jobs. `candidates` has one for each algorithm of each job that runs; `missing`
    has the reasons for the others."""

    def __init__(self, network: Network, placement: list[int], variants: list[Variant], gloo: bool, arguments: argparse.Namespace, *,
                 program: str = "peer_rondo", gloo_program: str = "peer_gloo", builds: list[Path] | None = None):
        """Starts every variant of each of `builds`. The default is arguments.build."""
        self._network = network
        self._placement = placement
        builds = builds or [arguments.build]
        self._build = builds[0].resolve()
        self._folder = Path(tempfile.mkdtemp(prefix="rondo-hosts-"))
        self._groups: list[Group] = []
        self.candidates: list[Candidate] = []
        self.missing: dict[str, str] = {}
        try:
            for number, (build, variant) in enumerate(itertools.product(builds, variants)):
                name = variant.name if len(builds) == 1 else f"{build}:{variant.name}"
                self._start(name, arguments.timeout, build.resolve(), program, lambda *_: [], self._rondo(number) | variant.environment)
            if gloo:
                self._start("gloo", arguments.timeout, self._build, gloo_program, self._gloo, {})
            for group in self._groups:
                self._await(group)
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def drop(self, candidate: Candidate, reason: str) -> None:
        """Stops a job that has failed and removes its candidates."""
        self.missing[candidate.group.name] = reason
        candidate.group.stop()
        self.candidates = [other for other in self.candidates if other.group is not candidate.group]

    def _rondo(self, number: int) -> dict[str, str]:
        place = f"tcp://{self._network.hosts[self._placement[0]].address()}:{FIRST_PORT + number}"
        return {"RONDO_SIZE": str(len(self._placement)), "RONDO_RENDEZVOUS": place, "RONDO_SECRET": secrets.token_hex(16)}

    def _gloo(self, rank: int, folder: Path) -> list[str]:
        store = folder / "store"
        store.mkdir(exist_ok=True)
        return [str(rank), str(len(self._placement)), str(store), INTERFACE]

    def _start(self, name: str, timeout: float, build: Path, program: str, more_arguments, environment: dict[str, str]) -> None:
        path = build / "bench" / "peers" / program
        if not path.exists():
            self.missing[name] = f"not installed ({path} was not built)"
            return
        folder = self._folder / str(len(self._groups))
        folder.mkdir()
        group = Group(name, len(self._placement), folder, timeout)
        self._groups.append(group)
        launches = []
        for rank, host in enumerate(self._placement):
            command = [path, group.control, *more_arguments(rank, folder)]
            launches.append(Launch(self._network.hosts[host].command(command), environment | {"RONDO_RANK": str(rank)}))
        group.start(launches)

    def _await(self, group: Group) -> None:
        try:
            group.wait_until_ready()
        except Failure as reason:
            self.missing[group.name] = str(reason)
            group.stop()
            return
        self.candidates += [Candidate(group, algorithm) for algorithm in group.algorithms]

    def _stop(self) -> None:
        for group in self._groups:
            group.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
