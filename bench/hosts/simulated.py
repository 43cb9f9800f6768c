# SPDX-License-Identifier: Apache-2.0
"""What `rondo plan --simulate` predicts for a job on these hosts."""

import json
import subprocess
from pathlib import Path

from group import Failure
from jobs import Variant

PLACEMENTS = {"host": "blocks", "turn": "turns"}


def simulated_us(build: Path, variant: Variant, hosts: int, each: int, order: str, cores: int, size: int, rate: float) -> float | None:
    """Returns microseconds, or None where the variant does not set its algorithm. rate: of a
    host's links together, in bytes per second."""
    algorithm = variant.environment.get("RONDO_ALGORITHM")
    if algorithm is None:
        return None
    command = [build / "tools" / "rondo", "plan", "all_reduce", "--simulate", "--json", "-", "--algorithm", algorithm, "--bytes", size, "--hosts",
               hosts, "--ranks-per-host", each, "--placement", PLACEMENTS[order], "--link-rate", f"{rate * 8 / 1e6:.0f}mbit", "--shared-cores", cores]
    for variable, flag in ("RONDO_SEGMENT_BYTES", "--segment-bytes"), ("RONDO_DEPTH", "--depth"):
        if variable in variant.environment:
            command += [flag, variant.environment[variable]]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"rondo plan --simulate: {done.stderr.strip()}")
    return json.loads(done.stdout)["results"][0]["seconds"] * 1e6
