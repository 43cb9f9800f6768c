#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a fake peer as mpirun would. Writes its arguments and variables to a file
beside itself."""

import os
import subprocess
import sys
from pathlib import Path

network = {name: value for name, value in os.environ.items() if name.startswith(("MPIR_", "UCX_"))}
with Path(sys.argv[0] + ".told").open("a") as told:
    print(*sys.argv[1:], network, file=told)
size = sys.argv[sys.argv.index("-n") + 1]
ranks = [subprocess.Popen(sys.argv[-2:], env=os.environ | {"FAKE_RANK": str(rank), "FAKE_SIZE": size}) for rank in range(int(size))]
sys.exit(max(abs(rank.wait()) for rank in ranks))
