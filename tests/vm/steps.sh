# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Steps for the scripts that run in a guest. Each script begins with all of them (init.sh).

# The shell would take applets of its own, which know no veth and no netem.
ip() { /usr/local/bin/ip "$@"; }
tc() { /usr/local/bin/tc "$@"; }

# An MTU that holds an RDMA packet of 4096 bytes with its headers.
MTU=4200

# rdma_device NAME INTERFACE ADDRESS: the interface gets the address, and an RDMA device.
rdma_device() {
  ip link set "$2" mtu $MTU up && ip address add "$3/24" dev "$2" && rdma link add "$1" type rxe netdev "$2"
}

# One host with two RDMA devices, rxe0 (10.78.0.1) and rxe1 (10.78.0.2), at the ends of a cable.
# Both ends have their address on the same host, so the kernel must accept its own addresses.
two_devices() {
  ip link add d0 type veth peer name d1 || return
  for name in all d0 d1; do
    echo 1 >/proc/sys/net/ipv4/conf/$name/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$name/rp_filter
  done
  rdma_device rxe0 d0 10.78.0.1 && rdma_device rxe1 d1 10.78.0.2
}

# impair INTERFACE NETEM...: loses or delays what the interface sends: impair d0 loss 1%, impair d0
# delay 5ms. Without NETEM it ends that.
impair() {
  interface=$1
  shift
  if [ $# -gt 0 ]; then tc qdisc replace dev "$interface" root netem limit 10000 "$@"; else tc qdisc del dev "$interface" root; fi
}

# restore: ends all that scripts have done to the cable between the two devices.
restore() {
  for interface in d0 d1; do
    impair $interface 2>/dev/null
    ip link set $interface up
  done
}

# listening PORT: waits until a program listens there.
listening() {
  until netstat -tln | grep -q ":$1 "; do sleep 0.1; done
}

# rank RANK COMMAND...: runs a command as one of two ranks, rank 0 at 10.78.0.1.
rank() {
  export RONDO_RANK="$1" RONDO_SIZE=2 RONDO_RENDEZVOUS=tcp://10.78.0.1:29500 RONDO_SECRET=secret
  shift
  "$@"
}
