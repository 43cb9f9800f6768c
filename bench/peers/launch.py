# SPDX-License-Identifier: Apache-2.0
"""How the ranks of each library are started. docs/compare.md gives the reasons for every option."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

PEERS = ("gloo", "openmpi", "mpich")
TRANSPORTS = ("tcp", "shm")
# Rondo's candidates by transport: one of them uses memory from Communicator::allocate.
RONDO = {"tcp": ("rondo",), "shm": ("rondo", "rondo_allocated")}
# The names of an earlier build (--before): a peer for each kind of memory, compared with Rondo on
# the same kind.
BEFORE = {name: name.replace("rondo", "before") for name in RONDO["shm"]}
INTERFACE = "lo"


class Missing(Exception):
    """A library cannot be measured here. The text says what is missing."""


@dataclass
class Launch:
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def has(name: str, transport: str) -> bool:
    """Whether the library has this transport."""
    return transport == "tcp" or name != "gloo"


def launches(name: str, transport: str, build: Path, ranks: int, control: Path, folder: Path) -> list[Launch]:
    """The processes to start: `ranks` ranks of the library will connect to `control`. No other
    job uses `folder`."""
    library = name.partition("_")[0].replace("before", "rondo")
    program = build / "bench" / "peers" / f"peer_{library}"
    if not program.exists():
        raise Missing(f"not installed ({program} was not built)")
    rank_command = [str(program), str(control)]
    return _LAUNCHERS[name](rank_command, transport, ranks, folder)


def _rondo(rank_command: list[str], transport: str, ranks: int, folder: Path) -> list[Launch]:
    common = {
        "RONDO_SIZE": str(ranks),
        "RONDO_RENDEZVOUS": f"file://{folder / 'rendezvous'}",
        "RONDO_TRANSPORT": transport,
        "RONDO_INTERFACE": INTERFACE,
    }
    return [Launch(rank_command, common | {"RONDO_RANK": str(rank)}) for rank in range(ranks)]


def _rondo_allocated(rank_command: list[str], transport: str, ranks: int, folder: Path) -> list[Launch]:
    return _rondo([*rank_command, "allocate"], transport, ranks, folder)


def _gloo(rank_command: list[str], _transport: str, ranks: int, folder: Path) -> list[Launch]:
    store = folder / "store"
    store.mkdir()
    return [Launch([*rank_command, str(rank), str(ranks), str(store), INTERFACE]) for rank in range(ranks)]


def _openmpi(rank_command: list[str], transport: str, ranks: int, _folder: Path) -> list[Launch]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", INTERFACE]
    network = tcp if transport == "tcp" else ["--mca", "btl", "vader,self"]
    launcher = [_tool("mpirun.openmpi"), *as_root, "--oversubscribe", "-n", str(ranks), "--mca", "pml", "ob1", *network]
    return [Launch(launcher + rank_command)]


def _mpich(rank_command: list[str], transport: str, ranks: int, _folder: Path) -> list[Launch]:
    network = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": INTERFACE}
    if transport == "shm":
        if ranks > len(os.sched_getaffinity(0)):
            raise Missing("spins without yielding: over shared memory it does not finish with more ranks than cores")
        network = {"MPIR_CVAR_NOLOCAL": "0"}
    return [Launch([_tool("mpirun.mpich"), "-n", str(ranks), *rank_command], network)]


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"not installed ({name} not found)")
    return path


_LAUNCHERS = {"rondo": _rondo, "rondo_allocated": _rondo_allocated, "before": _rondo, "before_allocated": _rondo_allocated,
              "gloo": _gloo, "openmpi": _openmpi, "mpich": _mpich}
