#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# unprivileged.sh FOLDER COMMAND...: runs COMMAND in this folder as an ordinary user with at most
# 1,024 descriptors. Root becomes user 65534 without any capability; this user owns
# FOLDER/meson-logs meanwhile. Paths stay the same. Where a folder above this one is closed to
# others (mktemp -d, /root), the command runs in a mount namespace that makes this folder reachable.
set -euo pipefail

folder=$1
shift
if ((EUID != 0)); then
  ulimit -n 1024
  exec "$@"
fi

# Finds the uppermost folder of the path that others may not enter.
closed="" way=""
IFS=/ read -ra parts <<<"${PWD#/}"
for part in "${parts[@]}"; do
  way+=/$part
  if [[ $(stat -c %A "$way") != *[xt] ]]; then
    closed=$way
    break
  fi
done
# Mounts an empty folder over it, in which only this tree is visible. Where no folder is closed, no
# mount is needed, and no right to mount.
tree=$PWD
if [[ -n $closed ]]; then
  [[ $closed != "$tree" ]] || { echo "unprivileged.sh: other users may not enter $tree: chmod o+rx it" >&2; exit 1; }
  if [[ -z ${RONDO_OWN_MOUNTS:-} ]]; then
    RONDO_OWN_MOUNTS=1 exec unshare --mount --propagation private "$BASH" "$0" "$folder" "$@"
  fi
  hold=$(mktemp -d)
  mount --bind "$tree" "$hold"
  mount -t tmpfs -o mode=755 tmpfs "$closed"
  mkdir -p "$tree"
  mount --move "$hold" "$tree"
  rmdir "$hold"
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
