#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts one rank of a program on each host, and waits for all of them.
#
#   run-on.sh HOST,HOST,... PROGRAM ARGUMENTS                           over ssh
#   REACH="ip netns exec" run-on.sh HOST,HOST,... PROGRAM ARGUMENTS     network namespaces as hosts
#
# $REACH HOST bash -s must run a script, given on standard input, on that host. A host that is named
# twice gets two ranks. PROGRAM has the same path on all hosts, and gets the RONDO_* of this script's
# environment. Rank 0 is on the first host and listens there on $PORT (29500). The exit status is the
# largest status of a rank, or 128 + the signal that ended this script. When this script is
# interrupted or dies, the programs end on all hosts: by SIGTERM, or by SIGKILL after 5 s.
set -eu
IFS=, read -ra hosts <<<"$1"
shift
# Without these options a host that does not answer would hang ssh for hours.
read -ra reach <<<"${REACH:-ssh -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3}"
RONDO_SECRET=$(openssl rand -hex 32)
RONDO_SIZE=${#hosts[@]} RONDO_RENDEZVOUS=tcp://${hosts[0]}:${PORT:-29500}
export RONDO_SECRET RONDO_SIZE RONDO_RENDEZVOUS
unset RONDO_SECRET_FILE
# Only this shell can write to this pipe, so its end is the end of this shell, however it dies. Every
# rank's standard input ends then.
folder=$(mktemp -d)
mkfifo "$folder/pipe"
exec {both}<>"$folder/pipe"
exec {reader}<"$folder/pipe"
exec {writer}>"$folder/pipe" {both}>&-
rm -r "$folder"
ranks=() signals=0 # how many have asked for the end
# shellcheck disable=SC2317  # the traps call it
stop() {
  ((signals == 0)) || kill "${ranks[@]}" 2>/dev/null || true # the second time: do not wait for the hosts
  signals=$((signals + 1)) signal=$1
  exec {writer}>&-
}
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 15' TERM

# Prints what a host runs for a rank. bash reads the block whole before it starts the program: the rest
# of its standard input is for the watcher, which waits for the end.
script_of() {
  local name
  for name in $(compgen -e RONDO_); do printf 'export %s=%q\n' "$name" "${!name}"; done
  cat <<END
export RONDO_RANK=$1
{
  set -m
  $(printf '%q ' "${@:2}") </dev/null &
  program=\$!
  { cat; kill -TERM -- -\$program; sleep 5; kill -KILL -- -\$program; } >/dev/null 2>&1 &
  # wait also returns when the program has been stopped.
  while status=0; wait \$program 2>/dev/null || status=\$?; kill -0 \$program 2>/dev/null; do sleep 0.1; done
  kill -KILL -- -\$! -\$program 2>/dev/null
  exit \$status
}
END
}

for rank in "${!hosts[@]}"; do
  # All of this goes through standard input, so that no list of processes shows the secret.
  "${reach[@]}" "${hosts[rank]}" bash -s \
    < <(exec {writer}>&- && script_of "$rank" "$@" && exec cat <&"$reader") {reader}<&- {writer}>&- &
  ranks+=($!)
done
largest=0
for rank in "${!ranks[@]}"; do
  before=-1 note=""
  while ((before != signals)); do # a signal interrupts wait
    before=$signals status=0
    wait "${ranks[rank]}" || status=$?
  done
  ((status != 255 || signals)) || note=", or the host was not reached"
  ((status == 0)) || echo "run-on.sh: rank $rank on ${hosts[rank]} ended with status $status$note" >&2
  ((status <= largest)) || largest=$status
done
exit $((signals ? 128 + signal : largest))
