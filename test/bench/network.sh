#!/usr/bin/env bash
# Measures how fast pods reach each other in skiff's network and in what upstream's parts make, side by side in one run, and prints a table for
# docs/performance.md:
#   test/bench/network.sh [ROUNDS]
# skiff is `skiff up --nodes 2` with its default overlay and proxy. The other side is two nodes of namespaces joined by a bridge as skiff's are, with
# upstream's bridge and host-local plugins, kube-proxy in nftables mode, and the interface, routes, neighbours and rules that Flannel makes for VXLAN, made
# here by hand. The same program, test/bench/network.py, sends in the pods' network namespaces on both sides.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
up=${UPSTREAM_DIR:-$PWD/build/upstream} skiff=${SKIFF:-$PWD/bin/skiff} kubectl=${KUBECTL:-$PWD/bin/kubectl}
rounds=${1:-3} seconds=${SECONDS_EACH:-4}

prepare() {
  "${SHARED_DIR:-$PWD/../shared}/upstream/build.sh" "$up" kube-proxy
  command -v nft >/dev/null || { echo 'network.sh: kube-proxy needs the nft program: install nftables' >&2; exit 1; }
  [ -e build/images/busybox.tar ] || { echo 'network.sh: make images builds the image that is missing' >&2; exit 1; }
}
. test/bench/alone.sh
trap '"$skiff" down --purge --name bench --data-dir "$work/skiff" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
ip link add outside type veth peer name uplink
ip link set outside up
ip link set uplink up
ip address add 192.0.2.10/24 dev uplink
ip route add default via 192.0.2.1

# skiff's side.
"$skiff" up --nodes 2 --name bench --data-dir "$work/skiff" >/dev/null
"$skiff" image load --name bench --data-dir "$work/skiff" build/images/busybox.tar >/dev/null
ours=$work/skiff/admin.kubeconfig
nodes=($("$kubectl" --kubeconfig "$ours" get nodes -o 'jsonpath={.items[*].metadata.name}'))
for pod in 1:0 2:0 3:1; do
  "$kubectl" --kubeconfig "$ours" apply -f - >/dev/null <<-YAML
	apiVersion: v1
	kind: Pod
	metadata: {name: pod-${pod%:*}, labels: {app: pod-${pod%:*}}}
	spec:
	  nodeName: ${nodes[${pod#*:}]}
	  terminationGracePeriodSeconds: 0
	  containers: [{name: c, image: busybox, command: [sleep, "88880${pod%:*}"]}]
	YAML
done
"$kubectl" --kubeconfig "$ours" create service clusterip pod-3 --tcp 7777:7777 >/dev/null
"$kubectl" --kubeconfig "$ours" wait --for condition=Ready pod --all --timeout 60s >/dev/null
address() { "$kubectl" --kubeconfig "$ours" get "$1" -o "jsonpath={$2}"; }
declare -A at
for i in 1 2 3; do at[skiff$i]=$(address "pod/pod-$i" .status.podIP); at[skiff-in$i]=/proc/$(pgrep -fx "sleep 88880$i")/ns/net; done
at[skiff-service]=$(address service/pod-3 .spec.clusterIP)

# The other side: an API server for kube-proxy, and two nodes on a bridge.
ip link add wire type bridge
ip address add 10.9.0.254/24 dev wire
ip link set wire up
"$skiff" server --no-node --name other --data-dir "$work/other" --port 7443 --bind-address 0.0.0.0 --advertise-address 10.9.0.254 --service-cluster-ip-range 10.53.0.0/16 > "$work/server.log" 2>&1 &
until [ -e "$work/other/admin.kubeconfig" ] && "$kubectl" --kubeconfig "$work/other/admin.kubeconfig" get --raw /readyz >/dev/null 2>&1; do sleep 0.2; kill -0 $!; done
theirs=$work/theirs.kubeconfig
sed -E 's#server: https://[^/]*#server: https://10.9.0.254:7443#' "$work/other/admin.kubeconfig" > "$theirs"
plugins=$(dirname "$(find "$work/skiff" -name host-local -perm -u+x | head -1)")
hardware() { printf '02:00:0a:09:00:0%d' "$1"; }
for i in 1 2; do
  other=$((3 - i))
  ip netns add node$i
  ip link add port$i type veth peer name eth0 netns node$i
  ip link set port$i master wire up
  ip -n node$i link set lo up
  ip -n node$i address add 10.9.0.$i/24 dev eth0
  ip -n node$i link set eth0 up
  ip -n node$i route add default via 10.9.0.254
  ip netns exec node$i sysctl -qw net.ipv4.ip_forward=1
  ip -n node$i link add flannel.1 address "$(hardware $i)" type vxlan id 1 local 10.9.0.$i dev eth0 dstport 8472 nolearning
  ip -n node$i address add 10.52.$i.0/32 dev flannel.1
  ip -n node$i link set flannel.1 up
  ip -n node$i route add 10.52.$other.0/24 via 10.52.$other.0 dev flannel.1 onlink
  ip -n node$i neighbour add 10.52.$other.0 lladdr "$(hardware $other)" dev flannel.1
  bridge -n node$i fdb append "$(hardware $other)" dev flannel.1 dst 10.9.0.$other
  ip netns exec node$i nft -f - <<-NFT
	table ip flannel-ipv4 {
	  chain postrtg {
	    type nat hook postrouting priority srcnat
	    meta mark 0x4000 return
	    ip saddr 10.52.$i.0/24 ip daddr 10.52.0.0/16 return
	    ip saddr 10.52.0.0/16 ip daddr 10.52.$i.0/24 return
	    ip saddr != 10.52.$i.0/24 ip daddr 10.52.0.0/16 return
	    ip saddr 10.52.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
	    ip saddr != 10.52.0.0/16 ip daddr 10.52.0.0/16 masquerade fully-random
	  }
	  chain forward {
	    type filter hook forward priority filter
	    ip saddr 10.52.0.0/16 accept
	    ip daddr 10.52.0.0/16 accept
	  }
	}
	NFT
  "$kubectl" --kubeconfig "$theirs" create -f - >/dev/null <<<"{apiVersion: v1, kind: Node, metadata: {name: node$i}}"
  "$kubectl" --kubeconfig "$theirs" patch node node$i --subresource status --type merge -p "{\"status\":{\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"10.9.0.$i\"}]}}" >/dev/null
done
for pod in 1:1 2:1 3:2; do
  i=${pod%:*} node=${pod#*:}
  ip netns add pod$i
  ip -n pod$i link set lo up
  CNI_COMMAND=ADD CNI_CONTAINERID=pod$i CNI_NETNS=/run/netns/pod$i CNI_IFNAME=eth0 CNI_PATH=$plugins ip netns exec node$node "$plugins/bridge" > "$work/pod$i" <<-JSON
	{"cniVersion": "1.0.0", "name": "cbr0", "type": "bridge", "mtu": 1450, "hairpinMode": true, "isDefaultGateway": true,
	 "ipam": {"type": "host-local", "dataDir": "$work/ipam$node", "subnet": "10.52.$node.0/24", "routes": [{"dst": "10.52.0.0/16"}]}}
	JSON
  at[upstream$i]=$(grep -o '"address": "[^/"]*' "$work/pod$i" | cut -d'"' -f4)
  at[upstream-in$i]=/run/netns/pod$i
done
"$kubectl" --kubeconfig "$theirs" create -f - >/dev/null <<YAML
{apiVersion: v1, kind: Service, metadata: {name: pod-3}, spec: {ports: [{name: p, port: 7777}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: pod-3-1, labels: {kubernetes.io/service-name: pod-3}}, addressType: IPv4,
 ports: [{name: p, port: 7777, protocol: TCP}], endpoints: [{addresses: [${at[upstream3]}], nodeName: node2, conditions: {ready: true}}]}
YAML
at[upstream-service]=$("$kubectl" --kubeconfig "$theirs" get service pod-3 -o 'jsonpath={.spec.clusterIP}')
for i in 1 2; do
  ip netns exec node$i "$up/kube-proxy" --kubeconfig "$theirs" --hostname-override node$i --proxy-mode nftables --cluster-cidr 10.52.0.0/16 \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0 > "$work/proxy$i.log" 2>&1 &
done

for system in upstream skiff; do
  for i in 2 3; do nsenter --net="${at[$system-in$i]}" python3 test/bench/network.py serve & done
  for target in ${at[${system}2]} ${at[${system}3]} ${at[$system-service]}; do nsenter --net="${at[$system-in1]}" python3 test/bench/network.py await "$target"; done
done

report() { printf '%s\t%s\t%s\n' "$1" "$2" more >> "$work/$system.$round"; echo "$system: $1: $2" >&2; }
run() { nsenter --net="${at[$system-in1]}" python3 test/bench/network.py "$1" "$2" "$seconds"; }
for round in $(seq "$rounds"); do
  for way in 'pods of one node:2' 'pods of two nodes:3' 'through a Service, to another node:-service'; do
    for system in upstream skiff; do
      report "${way%:*}: one stream (MB/s)" "$(run stream "${at[$system${way#*:}]}")"
      report "${way%:*}: questions and answers (per second)" "$(run ask "${at[$system${way#*:}]}")"
    done
  done
done
python3 test/bench/table.py "$work" "$rounds" upstream skiff
