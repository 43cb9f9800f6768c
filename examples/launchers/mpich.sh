#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A preflight of hosts with mpiexec of MPICH (Hydra) or Intel MPI, one rank on each:
#
#   mpich.sh HOST,HOST,... FLAGS OF RONDO BENCH
#
# $MPIEXEC is the mpiexec to use. Start this on the first host: rank 0 is there, and listens on $PORT.
set -eu
hosts=$1
shift
commas=${hosts//[^,]/}
RONDO_RENDEZVOUS=tcp://${hosts%%,*}:${PORT:-29500}
RONDO_SECRET=$(openssl rand -hex 32)
export RONDO_RENDEZVOUS RONDO_SECRET
exec "${MPIEXEC:-mpiexec}" -n $((${#commas} + 1)) -ppn 1 -hosts "$hosts" \
  -genvlist RONDO_RENDEZVOUS,RONDO_SECRET rondo bench "$@"
