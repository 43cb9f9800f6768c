#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts one rank of a program on each host, and waits for all of them.
#
#   run-on.sh HOST,HOST,... PROGRAM ARGUMENTS                           over ssh
#   REACH="ip netns exec" run-on.sh HOST,HOST,... PROGRAM ARGUMENTS     network namespaces as hosts
#
# $REACH HOST bash -s must run a script, given on standard input, on that host. A host that is named
# twice gets two ranks. PROGRAM has the same path on all hosts. Rank 0 is on the first host and
# listens there on $PORT (29500). The exit status is the largest status of a rank.
set -eu
IFS=, read -ra hosts <<<"$1"
shift
read -ra reach <<<"${REACH:-ssh}"
secret=$(openssl rand -hex 32)
ranks=()
trap 'kill "${ranks[@]}" 2>/dev/null' INT TERM
for rank in "${!hosts[@]}"; do
  # All of this goes through standard input, so that no list of processes shows the secret.
  "${reach[@]}" "${hosts[rank]}" bash -s <<END &
export RONDO_RANK=$rank RONDO_SIZE=${#hosts[@]} RONDO_RENDEZVOUS=tcp://${hosts[0]}:${PORT:-29500} RONDO_SECRET=$secret
exec $(printf '%q ' "$@") </dev/null
END
  ranks+=($!)
done
largest=0
for rank in "${!ranks[@]}"; do
  status=0
  wait "${ranks[rank]}" || status=$?
  ((status == 0)) || echo "run-on.sh: rank $rank on ${hosts[rank]} ended with status $status" >&2
  ((status <= largest)) || largest=$status
done
exit "$largest"
