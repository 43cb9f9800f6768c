# SPDX-License-Identifier: Apache-2.0
"""Three hosts, each with a real sshd and slurmd, to try launchers by hand. Needs root and the packages
of ./dev check launchers. Nothing of it is left afterwards.

    python3 -B tests/launchers/by_hand.py build/tools/rondo                     # a shell on node0
    python3 -B tests/launchers/by_hand.py build/tools/rondo 'srun -N3 rondo bench' ...   # commands there

The hosts are node0, node1 and node2; `rondo` is in their PATH, and no variable of Rondo or of a
launcher is set."""

import os
import subprocess
import sys

from daemons import lacks_slurm, lacks_ssh, start_slurm, start_ssh
from stage import MARK, Stage, enter, on, skip

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def main() -> int:
    enter()
    if reason := lacks_ssh() or lacks_slurm():
        skip(reason)
    status = 0
    stage = Stage(["node0", "node1", "node2"], os.path.abspath(sys.argv[1]), stand_ins=False)
    daemons = [start_ssh(stage), start_slurm(stage)]
    try:
        for command in [["bash", "-c", text] for text in sys.argv[2:]] or [["bash", "--norc"]]:
            print(f"node0# {command[-1]}", flush=True)
            status = subprocess.run(on("node0", command), env=stage.variables(**ROOT, **{MARK: "by-hand"})).returncode
            print(f"node0: status {status}", flush=True)
    finally:
        for started in reversed(daemons):
            started.close()
        stage.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
