#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A preflight of hosts with torchrun. Start it on every host, with the same secret and its own number:
#
#   export RONDO_SECRET_FILE=/run/secrets/rondo
#   NODES=4 NODE_RANK=0 MASTER=node0 torchrun.sh FLAGS OF RONDO BENCH
#
# NODE_RANK is 0 on $MASTER, whose port $PORT the agents of torchrun use. Rank 0 of Rondo is there
# too, on the next port. RANKS is the number of ranks on each host (1).
set -eu
exec "${TORCHRUN:-torchrun}" --nnodes "$NODES" --node-rank "$NODE_RANK" --nproc-per-node "${RANKS:-1}" \
  --master-addr "$MASTER" --master-port "${PORT:-29500}" --max-restarts 0 --no-python \
  rondo bench "$@"
