# SPDX-License-Identifier: Apache-2.0
"""How the ranks of each library are started. docs/compare.md gives the reasons for every option."""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

PEERS = ("gloo", "openmpi", "openmpi-nocma", "mpich")
TRANSPORTS = ("tcp", "shm")
# Rondo's candidates by transport: one of them uses memory from Communicator::allocate.
RONDO = {"tcp": ("rondo",), "shm": ("rondo", "rondo_allocated")}
# The names of an earlier build (--before): a peer for each kind of memory, compared with Rondo on
# the same kind.
BEFORE = {name: name.replace("rondo", "before") for name in RONDO["shm"]}
# Does only what every all-reduce over shared memory must do (peer_ceiling.cc). It is no peer.
CEILING = "ceiling"
INTERFACE = "lo"


class Missing(Exception):
    """A library cannot be measured here. The text says what is missing."""


@dataclass
class Launch:
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    # Descriptors that the process inherits. Group.start() closes them here.
    descriptors: list[int] = field(default_factory=list)


@dataclass
class Job:
    """What is started: `ranks` ranks will connect to `control`. No other job uses `folder`."""

    transport: str
    ranks: int
    control: Path
    folder: Path
    pin: bool  # binds rank r to core r, and starts again at core 0 when there are no more
    run: Path  # the `rondo` program that starts the ranks of libraries without an mpirun


def has(name: str, transport: str) -> bool:
    """Whether the library, started in this way, has this transport."""
    only = {"gloo": "tcp", "openmpi-nocma": "shm"}
    return only.get(name, transport) == transport


def cores() -> list[set[int]]:
    """The processors of each core that this process may use."""
    allowed = os.sched_getaffinity(0)
    found: dict[int, set[int]] = {}
    for processor in sorted(allowed):
        siblings = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/core_cpus_list")
        first = re.match(r"\d+", siblings.read_text()) if siblings.exists() else None
        found.setdefault(int(first[0]) if first else processor, set()).add(processor)
    return list(found.values())


def launch_of(name: str, build: Path, job: Job) -> Launch:
    """The launcher of all ranks. They are in its session, or in sessions that it makes."""
    library = name.partition("_")[0].partition("-")[0].replace("before", "rondo")
    program = build / "bench" / "peers" / f"peer_{library}"
    if not program.exists():
        raise Missing(f"not installed ({program} was not built)")
    return launch_command(name, [str(program), str(job.control)], job)


def launch_command(name: str, rank_command: list[str], job: Job) -> Launch:
    """The launcher of all ranks, where each rank of the library runs this command."""
    return _LAUNCHERS[name](rank_command, job)


def _rondo_run(rank_command: list[str], job: Job, *, binds: bool = True) -> list[str]:
    """The command that starts the ranks with `rondo run`, which binds them unless `binds` is false
    or the job's own places replace its choice."""
    if not job.run.exists():
        raise Missing(f"not installed ({job.run} was not built)")
    bind = [] if binds and not job.pin else ["--bind", "none"]
    if job.pin or "{rank}" in rank_command:
        places = [sorted(core) for core in cores()] if job.pin else []
        rank_command = [sys.executable, "-B", str(Path(__file__).with_name("as_rank.py")), json.dumps(places), *rank_command]
    # No grace: a job of which one rank has failed is not measured.
    return [str(job.run), "run", *bind, "--grace", "0", "-n", str(job.ranks), "--", *rank_command]


def _rondo(rank_command: list[str], job: Job) -> Launch:
    return Launch(_rondo_run(rank_command, job), {"RONDO_TRANSPORT": job.transport, "RONDO_INTERFACE": INTERFACE})


def _rondo_allocated(rank_command: list[str], job: Job) -> Launch:
    return _rondo([*rank_command, "allocate"], job)


def _gloo(rank_command: list[str], job: Job) -> Launch:
    store = job.folder / "store"
    store.mkdir()
    return Launch(_rondo_run([*rank_command, "{rank}", "{size}", str(store), INTERFACE], job, binds=False))


def _openmpi(rank_command: list[str], job: Job, *more: str) -> Launch:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", INTERFACE]
    network = tcp if job.transport == "tcp" else ["--mca", "btl", "vader,self"]
    pin = ["--map-by", "core", "--bind-to", "core:overload-allowed"] if job.pin else []
    launcher = [_tool("mpirun.openmpi"), *as_root, "--oversubscribe", *pin, "-n", str(job.ranks), "--mca", "pml", "ob1", *network, *more]
    return Launch(launcher + rank_command)


def _openmpi_nocma(rank_command: list[str], job: Job) -> Launch:
    return _openmpi(rank_command, job, "--mca", "btl_vader_single_copy_mechanism", "none")


def _mpich(rank_command: list[str], job: Job) -> Launch:
    network = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": INTERFACE}
    if job.transport == "shm":
        if job.ranks > len(os.sched_getaffinity(0)):
            raise Missing("spins without yielding: over shared memory it does not finish with more ranks than cores")
        network = {"MPIR_CVAR_NOLOCAL": "0"}
    pin = ["-bind-to", "core"] if job.pin else []
    return Launch([_tool("mpirun.mpich"), *pin, "-n", str(job.ranks), *rank_command], network)


def _ceiling(rank_command: list[str], job: Job) -> Launch:
    # The file has no name, so nothing is left of it, however the run ends.
    memory = os.memfd_create("rondo-ceiling")
    return Launch(_rondo_run([*rank_command, "{rank}", "{size}", str(memory)], job), descriptors=[memory])


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"not installed ({name} not found)")
    return path


_LAUNCHERS = {"rondo": _rondo, "rondo_allocated": _rondo_allocated, "before": _rondo, "before_allocated": _rondo_allocated,
              "gloo": _gloo, "openmpi": _openmpi, "openmpi-nocma": _openmpi_nocma, "mpich": _mpich, CEILING: _ceiling}
