#!/usr/bin/env bash
# Has three PostgreSQL servers in a StatefulSet, on claims of the default StorageClass, survive `kill -9` of every part of the cluster while pgbench and
# a writer write: what a server has acknowledged is there at the end.
#   test/postgres/run.sh [ROUNDS] [SEED]     10 rounds and a seed of the clock if none are given; the seed is printed
# A round kills one of: the process of the cluster (API server, loops, scheduler, kubelet), containerd, the shim of a server's pod, a server's first
# process, all of a server's processes; or deletes a server's pod, without grace. Needs root, bin/skiff, bin/kubectl and test/images/build.sh; about
# 10 seconds a round. The cluster runs on a machine of its own, as far as namespaces make one. WORK is where its logs are; without it they are removed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
skiff=${SKIFF:-$repo/bin/skiff} images=${IMAGES:-$repo/build/images}

main() {
  [ "$(id -u)" = 0 ] || { echo 'run.sh: a node needs root' >&2; exit 1; }
  export rounds=${1:-10} seed=${2:-$((SRANDOM % 32768))} work=${WORK:-$(mktemp -d)}
  mkdir -p "$work/acknowledged"; work=$(cd "$work" && pwd)
  GO=${GO:-go} SKIFF=$skiff "$repo/test/images/build.sh" "$images" postgres
  echo "seed $seed"
  local result=0
  unshare --net --mount --pid --ipc --fork --kill-child=KILL --mount-proc bash "${BASH_SOURCE[0]}" inside || result=$?
  [ -n "${WORK:-}" ] || rm -rf "$work"
  exit $result
}

kubectl() { "${KUBECTL:-$repo/bin/kubectl}" --kubeconfig "$data/admin.kubeconfig" --request-timeout 10s "$@"; }
up() { "$skiff" up --name postgres --data-dir "$data" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; return 1; }; }
down() { "$skiff" down --purge --name postgres --data-dir "$data" >"$work/down.log" 2>&1 || cat "$work/down.log" >&2; }
fail() { echo "run.sh: seed $seed: $*" >&2; kubectl get pods,pvc >&2 || true; exit 1; }
wait_for() { # SECONDS CMD...
  local until=$((SECONDS + $1)); shift
  until "$@" >"$work/wait_for" 2>&1; do [ $SECONDS -lt $until ] || fail "waited in vain for: $*: $(tail -c 400 "$work/wait_for")"; sleep 0.5; done
}
ready() { [ "$(kubectl get statefulset postgres -o 'jsonpath={.status.readyReplicas}')" = 3 ]; }
sql() { kubectl exec -i "postgres-$1" -- psql -h 127.0.0.1 -U postgres -qAt -v ON_ERROR_STOP=1 "${@:2}"; }

# The first process of each server, whose parent is the shim of its container.
servers() { local pid; for pid in $(pgrep -x postgres); do [ "$(cat "/proc/$(parent "$pid")/comm")" != containerd-shim ] || echo "$pid"; done 2>/dev/null; } # some end meanwhile
parent() { awk '{print $4}' "/proc/$1/stat"; }
server() { local all=($(servers)); [ ${#all[@]} -gt 0 ] && echo "${all[$1 % ${#all[@]}]}"; }

kill_one() {
  local pid pick=$RANDOM
  case $1 in
    cluster) kill -9 "$(cat "$data/skiff.pid")"; sleep "0.$((pick % 10))"; up;;
    containerd) pid=$(pgrep -x containerd) && kill -9 $pid;;
    shim) pid=$(server "$pick") && kill -9 "$(parent "$pid")";;
    server) pid=$(server "$pick") && kill -9 "$pid";;
    processes) pid=$(server "$pick") && kill -9 $(pgrep -P "$pid") "$pid";;
    pod) kubectl delete pod "postgres-$((pick % 3))" --grace-period 0 --force >/dev/null 2>&1;;
  esac
}

machine() { # namespaces that are ours alone, as those of a machine
  mount --make-rprivate /; mount --make-rshared /
  local dir
  for dir in /run /var/lib/cni /etc/cni /opt/cni; do [ ! -d $dir ] || mount -t tmpfs -o mode=755 tmpfs $dir; done
  ip link set lo up
  ip link add uplink type veth peer name outside
  ip link set outside up; ip link set uplink up
  ip addr add 192.0.2.10/24 dev uplink
  ip route add default via 192.0.2.1
}

writers=()
clean() {
  kill "${writers[@]}" 2>/dev/null || true
  cp "$data"/*.log "$work/" 2>/dev/null || true
  down
  umount "$work/cluster" || true
  rm -rf "$work/cluster" "$work/cluster.ext4"
}

inside() {
  data=$work/cluster; RANDOM=$seed
  export HOME=$work/home KUBECONFIG=; mkdir -p "$HOME" "$data"
  machine
  # A disk of its own: how full this machine's is should not be what is tested.
  truncate -s 8G "$data.ext4"; mkfs.ext4 -q "$data.ext4"
  mount -o loop "$data.ext4" "$data"; data=$data/skiff
  trap clean EXIT
  trap 'exit 130' INT TERM
  up
  "$skiff" image load --data-dir "$data" "$images/postgres.tar" >/dev/null
  kubectl apply -f "$here/cluster.yaml" >/dev/null
  wait_for 120 ready
  write
  local i round part size parts=(cluster containerd shim server processes pod)
  for round in $(seq "$rounds"); do
    part=${parts[RANDOM % ${#parts[@]}]}
    [ "$round" -gt ${#parts[@]} ] || part=${parts[round - 1]} # each at least once
    sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"
    kill_one "$part" || fail "round $round: nothing to kill: $part"
    sleep 1
    wait_for 180 ready
    sizes
    wait_for 60 grown
    echo "round $round of $rounds: $part; acknowledged $(cat "$work"/acknowledged/* | wc -l)"
  done
  kill "${writers[@]}" 2>/dev/null || true
  kubectl delete pods -l app=writer --wait >/dev/null
  check
  # Scaled down and up again, with other pods, the servers find their data by their names.
  kubectl scale statefulset postgres --replicas 0 >/dev/null
  wait_for 120 gone
  kubectl scale statefulset postgres --replicas 3 >/dev/null
  wait_for 120 ready
  check
  echo "seed $seed: $rounds rounds; all of $(cat "$work"/acknowledged/* | wc -l) acknowledged rows are there"
}

write() { # has pgbench and a writer write to every server
  local i
  for i in 0 1 2; do
    sql $i -c 'CREATE TABLE written (n bigint PRIMARY KEY)'
    kubectl exec "postgres-$i" -- pgbench -q -i -s 1 -h 127.0.0.1 -U postgres postgres >/dev/null 2>&1
    sed "s|NUMBER|$i|g; s|DIRECTORY|$work/acknowledged|" "$here/writer.yaml" | kubectl apply -f - >/dev/null
    pgbench_forever $i & writers+=($!)
  done
  wait_for 60 acknowledged
}

pgbench_forever() { while :; do kubectl --request-timeout 0 exec "postgres-$1" -- pgbench -n -c 2 -T 600 -h 127.0.0.1 -U postgres postgres >/dev/null 2>&1 || true; sleep 1; done; }
acknowledged() { local i; for i in 0 1 2; do [ -s "$work/acknowledged/$i" ] || return 1; done; }
sizes() { for i in 0 1 2; do size[i]=$(wc -l <"$work/acknowledged/$i"); done; }
grown() { for i in 0 1 2; do [ "$(wc -l <"$work/acknowledged/$i")" -gt "${size[i]}" ] || return 1; done; } # every server acknowledges again
gone() { [ -z "$(kubectl get pods -l app=postgres -o name)" ]; }

check() {
  local i lost
  for i in 0 1 2; do
    sort -n "$work/acknowledged/$i" >"$work/sent"
    sql $i -c 'SELECT n FROM written ORDER BY n' | sort -n >"$work/found"
    lost=$(comm -23 <(sort "$work/sent") <(sort "$work/found") | wc -l)
    [ "$lost" = 0 ] || fail "postgres-$i lost $lost of $(wc -l <"$work/sent") acknowledged rows"
    # Each transaction of pgbench changes the balances of three tables by the same amount.
    [ "$(sql $i -c 'SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches) AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers)')" = t ] || fail "the balances in postgres-$i differ"
  done
}

case ${1:-} in inside) inside;; *) main "$@";; esac
