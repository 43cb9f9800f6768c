#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# unprivileged.sh FOLDER COMMAND...: runs COMMAND in this folder as an ordinary user with at most
# 1,024 descriptors. Root becomes user 65534 without any capability; this user owns
# FOLDER/meson-logs meanwhile. Paths stay the same. Where a folder above this tree or above PyTorch is
# closed to others (mktemp -d, /root), the command runs in a mount namespace that makes both reachable.
set -euo pipefail

folder=$1
shift
if ((EUID != 0)); then
  ulimit -n 1024
  exec "$@"
fi

# Prints the uppermost folder of a path that others may not enter; nothing where there is none.
closed_above() {
  local way="" part parts
  IFS=/ read -ra parts <<<"${1#/}"
  for part in "${parts[@]}"; do
    way+=/$part
    [[ $(stat -c %A "$way") == *[xt] ]] || { echo "$way"; return; }
  done
}

# This tree, and PyTorch, which is in the cache of the user who set it up. Mounts an empty folder over
# each closed folder, in which only these are visible. Where no folder is closed, no mount is needed,
# and no right to mount.
tree=$PWD paths=("$PWD") closed=() hidden=() holds=()
if torch=$(python3 -B tests/torch/environment.py --find); then paths+=("$torch"); fi
for path in "${paths[@]}"; do
  way=$(closed_above "$path")
  [[ -z $way ]] || { closed+=("$way") hidden+=("$path"); }
done
if ((${#closed[@]})); then
  [[ ${closed[0]} != "$tree" ]] || { echo "unprivileged.sh: other users may not enter $tree: chmod o+rx it" >&2; exit 1; }
  if [[ -z ${RONDO_OWN_MOUNTS:-} ]]; then
    RONDO_OWN_MOUNTS=1 exec unshare --mount --propagation private "$BASH" "$0" "$folder" "$@"
  fi
  for path in "${hidden[@]}"; do
    holds+=("$(mktemp -d)")
    mount --bind "$path" "${holds[-1]}"
  done
  for way in "${closed[@]}"; do
    # One may be above both.
    [[ -z $(closed_above "$way") ]] || mount -t tmpfs -o mode=755 tmpfs "$way"
  done
  for place in "${!hidden[@]}"; do
    mkdir -p "${hidden[place]}"
    mount --move "${holds[place]}" "${hidden[place]}"
    rmdir "${holds[place]}"
  done
  cd "$tree"
fi

unset RONDO_OWN_MOUNTS

home=$(mktemp -d)
chown -R 65534:65534 "$home" "$folder/meson-logs"
status=0
env HOME="$home" USER=nobody setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all \
  -- "$BASH" -c 'ulimit -n 1024 && exec "$@"' bash "$@" || status=$?
chown -R 0:0 "$folder/meson-logs"
rm -rf "$home"
exit $status
