#!/usr/bin/env bash
# Runs a command twice at once, as two machines with a cable between them: in two network
# namespaces, each with its own loopback, addresses and ports.
#
#   unshare --user --map-root-user --net bash two_namespaces.sh COMMAND...
#
# The command finds NODE_RANK, MASTER_ADDR and, for gloo, the network interface in its environment.
set -euo pipefail

ready=$(mktemp --dry-run)
unshare --net bash -c "touch '$ready'; exec sleep 600" &
other=$!
trap 'kill $other; rm -f "$ready"' EXIT
while [[ ! -e $ready ]]; do sleep 0.01; done

there=(nsenter --target "$other" --net)
ip link add node0 type veth peer name node1 netns "$other"
ip address add 10.9.8.1/24 dev node0
"${there[@]}" ip address add 10.9.8.2/24 dev node1
ip link set lo up
ip link set node0 up
"${there[@]}" ip link set lo up
"${there[@]}" ip link set node1 up

export MASTER_ADDR=10.9.8.1
NODE_RANK=1 GLOO_SOCKET_IFNAME=node1 "${there[@]}" "$@" &
second=$!
NODE_RANK=0 GLOO_SOCKET_IFNAME=node0 "$@"
wait "$second"
