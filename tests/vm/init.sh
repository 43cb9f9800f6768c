#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Process 1 of the guest (image.py puts it into the image as /init). It runs the scripts that
# guest.py sends over the serial line, several at a time. One line from guest.py is one request:
#
#   NUMBER SECONDS SCRIPT     SCRIPT is in base64; SECONDS is the time limit
#
# and it answers with lines that begin with a mark which the kernel's own messages never begin with:
#
#   @ready                    once, when the guest accepts requests
#   @NUMBER:TEXT              a line of output
#   @NUMBER=STATUS            the end; 137 is also the status of a script that ran out of time
export PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
exec <>/dev/ttyS0 >&0 2>&0
stty raw -echo

# run NUMBER SECONDS SCRIPT
run() {
  mkfifo "/run/$1"
  awk -v mark="@$1:" '{ print mark $0; fflush() }' <"/run/$1" &
  reader=$!
  # setsid makes a process group, so that nothing of the script is left when it ends.
  timeout -s KILL "$2" setsid sh -c ". /etc/steps.sh; $3" </dev/null >"/run/$1" 2>&1 &
  script=$!
  wait $script
  status=$?
  kill -KILL -$script
  wait $reader
  rm "/run/$1"
  echo "@$1=$status"
}

ulimit -l unlimited
ulimit -c 0
while read -r module; do insmod "$module"; done </etc/modules
ip link set lo up
# Soft-RoCE works in soft interrupts. At ordinary priority they wait until the clock interrupts a
# rank that spins: 4 ms for each message instead of 0.1 ms.
for process in /proc/[0-9]*; do
  case $(cat "$process/comm") in ksoftirqd/*) chrt --fifo --pid 1 "${process#/proc/}" ;; esac
done

# The end of a child would make `read` lose what it has read, so process 1 becomes the parent of all
# scripts.
requests() {
  echo @ready
  while read -r number seconds script; do
    (run "$number" "$seconds" "$(echo "$script" | base64 -d)" 2>/dev/null &)
  done
}
requests </dev/ttyS0 &
wait $!
