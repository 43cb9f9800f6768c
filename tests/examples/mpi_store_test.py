# SPDX-License-Identifier: Apache-2.0
"""examples/mpi under mpirun.
Usage: mpi_store_test.py [PATH_OF_MEAN_OVER_MPI]; without a path the program was not built."""

import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77  # the exit status with which a test tells meson that it could not run
LAUNCHER = re.compile(r"^(RONDO_|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$")


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


if len(sys.argv) < 2:
    skip("MPI's headers and libraries are not installed")
program = sys.argv[1]
linked = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30).stdout
openmpi = "libmpich" not in linked
mpirun = "mpirun.openmpi" if openmpi else "mpirun.mpich"
if shutil.which(mpirun) is None:
    skip(f"{mpirun} is not installed")
more = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])] if openmpi else []
for ranks in 1, 3:
    # A wrong rendezvous shows that Rondo uses the store and not the variables.
    environment = {name: value for name, value in os.environ.items() if not LAUNCHER.match(name)}
    environment["RONDO_RENDEZVOUS"] = "tcp://127.0.0.1:1"
    # MPI keeps its allocations until the process ends. Other tests find the leaks of Rondo.
    environment["ASAN_OPTIONS"] = ":".join([environment.get("ASAN_OPTIONS", "halt_on_error=1"), "detect_leaks=0"])
    result = subprocess.run([mpirun, *more, "-n", str(ranks), program], capture_output=True, text=True, timeout=90,
                            stdin=subprocess.DEVNULL, env=environment)
    wanted = [f"rank {rank}: {(ranks - 1) / 2:g}" for rank in range(ranks)]
    if result.returncode != 0 or sorted(result.stdout.splitlines()) != wanted:
        sys.exit(f"{ranks} ranks: status {result.returncode}\n{result.stdout}{result.stderr}")
    print(f"{ranks} ranks: ok")
