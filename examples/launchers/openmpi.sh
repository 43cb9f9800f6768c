#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A preflight of hosts with Open MPI's mpirun, one rank on each:
#
#   openmpi.sh HOST,HOST,... FLAGS OF RONDO BENCH
#
# $MPIRUN is the mpirun to use. Start this on the first host: rank 0 is there, and listens on $PORT.
set -eu
hosts=$1
shift
commas=${hosts//[^,]/}
RONDO_RENDEZVOUS=tcp://${hosts%%,*}:${PORT:-29500}
RONDO_SECRET=$(openssl rand -hex 32)
export RONDO_RENDEZVOUS RONDO_SECRET
exec "${MPIRUN:-mpirun}" -n $((${#commas} + 1)) --host "$hosts" --bind-to none \
  -x RONDO_RENDEZVOUS -x RONDO_SECRET rondo bench "$@"
