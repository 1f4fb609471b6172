#!/usr/bin/env bash
# Measures skiff and upstream side by side, in one run, with the same driver (../shared/kbench), and prints a table for docs/performance.md.
#   test/bench/run.sh [ROUNDS] [api|held|floor|kubelets|all|loops|custom|definitions]      upstream is built from its modules into build/upstream on first use (about 20 minutes)
# Each round runs upstream, then skiff, each alone and from an empty disk; the table shows the median of the rounds. "api" is the API server and its
# store, and what they do for clients; "held" is the same with the server held to HELD percent of a core, so that it is the server that is waited for
# and not the driver; "floor" is "api" with a server beside them that does nothing but send (test/bench/floor), and with what the driver takes; "kubelets" is
# how late 1,000 of them hear of their pods when 200 are created a second (test/bench/kubelets); "all" is the control plane with its loops and scheduler, and how fast pods get to 1,000 nodes.
# "loops" is the control plane too, and how fast its loops bring workloads to Ready on hollow nodes, and bind claims (test/bench/loops).
# "custom" is custom objects, a webhook and a policy, and "definitions" is 1,000 definitions that nobody uses (COUNT of SCHEMA bytes of schema each), created
# by one kubectl, and a start with them (test/bench/custom). DRIVER has more flags for these two, as -memory-objects 5000.
# With BEFORE=PROGRAM another version of skiff takes upstream's place: what a change costs.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} parts=${2:-api}
case $parts in
  api | held | floor | kubelets) stages=create,get,list,watch ready='API ready';;
  all) stages=sched,deploy ready='control plane ready';;
  loops) stages= ready='control plane ready';;
  custom) stages=memory,create,get,list,update,watch,webhook,policy ready='API ready';;
  definitions) stages=definitions ready='API ready';;
  *) echo "run.sh: api, held, floor, kubelets, all, loops, custom or definitions, not $parts" >&2; exit 2;;
esac
case $parts in all | loops) whole=yes;; *) whole=;; esac # with loops and scheduler
shared=$(cd .. && pwd)/shared
up=${UPSTREAM_DIR:-$PWD/build/upstream}
objects=${OBJECTS:-3000}
rest=${REST_SECONDS:-60} # how long to look at each at rest
held=${HELD:-25}         # percent of a core
count=${COUNT:-1000} schema=${SCHEMA:-8192} # definitions, and bytes of schema of each
work=$(mktemp -d)
pids=()
# Killed, as kube-apiserver does not end once its etcd is gone.
stop() { for p in "${pids[@]:-}"; do [ -n "$p" ] && kill -9 "$p" 2>/dev/null && wait "$p" 2>/dev/null || true; done; pids=(); }
# hold PIDS...: together they get no more than their part of a core, in slices of 10 ms.
if [ -d /sys/fs/cgroup/cpu ]; then group=/sys/fs/cgroup/cpu/skiff-bench-$$; else group=/sys/fs/cgroup/skiff-bench-$$; fi
hold() {
  local p; mkdir "$group"
  if [ -e "$group/cpu.cfs_quota_us" ]; then
    echo 10000 > "$group/cpu.cfs_period_us"; echo $((held * 100)) > "$group/cpu.cfs_quota_us"
  else
    echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; echo "$((held * 100)) 10000" > "$group/cpu.max"
  fi
  for p in "$@"; do echo "$p" > "$group/cgroup.procs"; done
}
letGo() { local n; for n in 1 2 3 4 5; do [ ! -d "$group" ] || rmdir "$group" 2>/dev/null && return; sleep 0.2; done; echo "run.sh: $group is left over" >&2; }
trap 'stop; bin/skiff down --purge --name bench --data-dir "$work/skiff" >/dev/null 2>&1 || true; letGo; rm -rf "$work"' EXIT

mkdir -p "$up"
[ -n "${BEFORE:-}" ] || "$shared/upstream/build.sh" "$up" etcd kube-apiserver $([ -z "$whole" ] || echo kube-controller-manager kube-scheduler)
case $parts in custom | definitions | loops) ;; *) [ -x "$up/kbench" ] || (cd "$shared/kbench" && go build -o "$up/kbench" .);; esac
command -v strace >/dev/null || { apt-get update -qq && apt-get install -y -qq strace; } >/dev/null
port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
now() { date +%s.%N; }
rss() { local kb=0 p; for p in "$@"; do kb=$((kb + $(awk '/^VmRSS/{print $2}' /proc/$p/status))); done; awk "BEGIN{printf \"%.1f\", $kb/1000}"; }
anon() { local kb=0 p; for p in "$@"; do kb=$((kb + $(awk '/^RssAnon/{print $2}' /proc/$p/status))); done; awk "BEGIN{printf \"%.1f\", $kb/1000}"; }
ticks() { local t=0 p; for p in "$@"; do t=$((t + $(awk '{print $14+$15}' /proc/$p/stat))); done; echo $t; }
written() { local b=0 p; for p in "$@"; do b=$((b + $(awk '/^write_bytes/{print $2}' /proc/$p/io))); done; echo $b; }
report() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$work/$system.$round"; }

# idle PIDS...: memory, CPU and disk writes at rest, over a minute.
idle() {
  sleep 15
  report 'memory at rest (MB resident)' "$(rss "$@")" less
  report 'of it anonymous (MB)' "$(anon "$@")" less
  local t0 w0 t1 w1; t0=$(ticks "$@"); w0=$(written "$@"); sleep "$rest"; t1=$(ticks "$@"); w1=$(written "$@")
  report 'CPU at rest (% of a core)' "$(awk "BEGIN{printf \"%.2f\", ($t1-$t0)/$rest}")" less
  report 'disk writes at rest (kB per hour)' "$(awk "BEGIN{printf \"%.0f\", ($w1-$w0)*3600/$rest/1000}")" less
  local p traced=(); for p in "$@"; do traced+=(-p "$p"); done
  timeout -s INT "$rest" strace -f -qq -e trace=fsync,fdatasync,sync_file_range -o "$work/syncs" "${traced[@]}" 2>/dev/null || true
  report 'fsyncs at rest (per hour)' "$(awk "BEGIN{print $(grep -c 'sync' "$work/syncs" || true)*3600/$rest}")" less
}

drive() { # KUBECONFIG PIDS...
  local config=$1; shift
  rm -f "$work/kbench"
  # Without loops nobody removes namespaces: do what the namespace controller would, so that kbench ends, once it has measured.
  ( while [ $parts != all ] && sleep 2; do
      grep -qs watch-lag-p99 "$work/kbench" || continue
      [ "$(bin/kubectl --kubeconfig "$config" get namespace kbench -o 'jsonpath={.status.phase}' 2>/dev/null)" = Terminating ] &&
        echo '{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kbench"},"spec":{"finalizers":[]}}' |
          bin/kubectl --kubeconfig "$config" replace --raw /api/v1/namespaces/kbench/finalize -f - >/dev/null
    done ) & local finalizer=$!
  python3 test/bench/stages.py "$up/kbench" "$config" "$stages" "$objects" "$@" > "$work/kbench" &
  local bench=$!
  ( while kill -0 $bench 2>/dev/null; do rss "$@"; echo; sleep 1; done | sort -n | tail -1 > "$work/peak" ) & local sampler=$!
  wait $bench; wait $sampler || true; kill $finalizer 2>/dev/null || true; wait $finalizer 2>/dev/null || true
  while read -r name value unit; do
    case $name in *-driver-cpu) [ $parts != floor ] || report "$name ($unit)" "$value" less;; *-bytes|*-p99) ;; *-p50|*-lag-*|*-first|*-cpu) report "$name ($unit)" "$value" less;; *) report "$name ($unit)" "$value" more;; esac
  done < "$work/kbench"
  report 'most memory during the run (MB)' "$(cat "$work/peak")" less
  sleep 10
  report 'memory ten seconds after it (MB)' "$(rss "$@")" less
}

# watched KUBECONFIG PIDS...: what kubelets see of a server, and what they cost it.
watched() {
  local config=$1 t0 name value unit; shift
  t0=$(ticks "$@")
  "$work/kubelets" --kubeconfig "$config" > "$work/lags"
  report 'server CPU (ms)' "$((($(ticks "$@") - t0) * 10))" less
  while read -r name value unit; do report "$name ($unit)" "$value" less; done < "$work/lags"
  sleep 10
  report 'memory ten seconds after it (MB)' "$(rss "$@")" less
}

# looped KUBECONFIG: how fast workloads get to Ready on hollow nodes.
looped() {
  local name value unit
  "$work/loops" --kubeconfig "$1" > "$work/looped"
  while read -r name value unit; do report "$name ($unit)" "$value" less; done < "$work/looped"
}

# extended KUBECONFIG PIDS...: what custom objects, webhooks, policies and definitions cost.
extended() {
  local config=$1 p of=() name value unit; shift
  for p in "$@"; do of+=(--pid "$p"); done
  "$work/custom" --kubeconfig "$config" --only "$stages" "${of[@]}" --rest "${rest}s" --kubectl bin/kubectl --count "$count" --schema "$schema" ${DRIVER:-} > "$work/extended"
  while read -r name value unit; do
    case $unit in ops/s|events/s) report "$name ($unit)" "$value" more;; *) report "$name ($unit)" "$value" less;; esac
  done < "$work/extended"
}

# restarted SECONDS-SINCE-EPOCH KUBECONFIG PIDS...: how long a start with the definitions took, and the memory after it.
restarted() {
  local t0=$1 config=$2; shift 2
  report 'started again (s)' "$(awk "BEGIN{printf \"%.2f\", $(now)-$t0}")" less
  "$work/custom" --kubeconfig "$config" --only served --count "$count"
  report 'started again, all served (s)' "$(awk "BEGIN{printf \"%.2f\", $(now)-$t0}")" less
  sleep "$rest"
  report 'anonymous memory after that (MB)' "$(anon "$@")" less
}

# measure KUBECONFIG PIDS...: everything about servers that are ready.
measure() {
  local config=$1; shift
  case $parts in held) sleep 5; hold "$@";; floor | kubelets | loops | custom | definitions) sleep 15;; *) idle "$@";; esac
  case $parts in kubelets) watched "$config" "$@";; loops) looped "$config";; custom | definitions) extended "$config" "$@";; *) drive "$config" "$@";; esac
}

# beside starts upstream's loops and scheduler, with the limits on their requests raised.
beside() {
  local limits="--kubeconfig $dir/kubeconfig --kube-api-qps 5000 --kube-api-burst 5000 --leader-elect=false --bind-address 127.0.0.1" port
  until curl -skf https://127.0.0.1:$sp/readyz >/dev/null 2>&1; do sleep 0.01; done
  "$up/kube-controller-manager" $limits --secure-port 0 --service-account-private-key-file "$dir/sa.key" > "$dir/controllers.log" 2>&1 & pids+=($!)
  printf 'apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: %s, qps: 5000, burst: 5000}\nleaderElection: {leaderElect: false}\n' "$dir/kubeconfig" > "$dir/scheduler.yaml"
  port=$(port)
  "$up/kube-scheduler" --config "$dir/scheduler.yaml" --bind-address 127.0.0.1 --secure-port "$port" > "$dir/scheduler.log" 2>&1 & pids+=($!)
  until curl -skf https://127.0.0.1:$port/readyz >/dev/null 2>&1; do sleep 0.05; done
}

# startUpstream starts etcd and what is in front of it on the directory and ports of upstream, and waits until it is ready.
startUpstream() {
  "$up/etcd" --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:$ep --advertise-client-urls http://127.0.0.1:$ep --listen-peer-urls http://127.0.0.1:$pp --initial-advertise-peer-urls http://127.0.0.1:$pp --initial-cluster default=http://127.0.0.1:$pp --log-level error > "$dir/etcd.log" 2>&1 & pids+=($!)
  "$up/kube-apiserver" --etcd-servers http://127.0.0.1:$ep --secure-port $sp --bind-address 127.0.0.1 --cert-dir "$dir/certs" --service-account-key-file "$dir/sa.key" --service-account-signing-key-file "$dir/sa.key" --service-account-issuer https://kubernetes.default.svc --token-auth-file "$dir/tokens.csv" --authorization-mode Node,RBAC --service-cluster-ip-range 10.43.0.0/16 --disable-admission-plugins ServiceAccount > "$dir/apiserver.log" 2>&1 & pids+=($!)
  [ -z "$whole" ] || beside
  until curl -skf https://127.0.0.1:$sp/readyz >/dev/null 2>&1; do sleep 0.01; done
}

upstream() {
  system=upstream
  local dir=$work/upstream ep pp sp t0; ep=$(port) pp=$(port) sp=$(port)
  rm -rf "$dir"; mkdir -p "$dir/certs"
  openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
  echo 'token,admin,admin,"system:masters"' > "$dir/tokens.csv"
  printf 'apiVersion: v1\nkind: Config\nclusters: [{name: u, cluster: {server: "https://127.0.0.1:%s", insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: token}}]\ncontexts: [{name: u, context: {cluster: u, user: u}}]\ncurrent-context: u\n' "$sp" > "$dir/kubeconfig"
  t0=$(now)
  startUpstream
  report "$ready (s)" "$(awk "BEGIN{printf \"%.2f\", $(now)-$t0}")" less
  measure "$dir/kubeconfig" "${pids[@]}"
  stop
  if [ $parts = definitions ]; then
    t0=$(now)
    startUpstream
    restarted "$t0" "$dir/kubeconfig" "${pids[@]}"
    stop
  fi
  letGo
}

skiff() { version skiff bin/skiff; }
before() { version before "$BEFORE"; }

# startSkiff starts the program on the directory and port of version, and waits until it is ready.
startSkiff() {
  "$program" up --no-node $only --name bench --data-dir "$dir" --port "$sp" >/dev/null
  until curl -skf https://127.0.0.1:$sp/readyz >/dev/null 2>&1; do sleep 0.01; done
}

version() { # SYSTEM PROGRAM
  system=$1
  local program=$2 dir=$work/skiff only= sp t0 pid; sp=$(port)
  [ -n "$whole" ] || only='--controllers=-namespace-controller --disable scheduler'
  rm -rf "$dir"
  t0=$(now)
  startSkiff
  report "$ready (s)" "$(awk "BEGIN{printf \"%.2f\", $(now)-$t0}")" less
  pid=$(cat "$dir/skiff.pid")
  measure "$dir/admin.kubeconfig" "$pid"
  if [ $parts = definitions ]; then
    "$program" stop --name bench --data-dir "$dir" >/dev/null
    t0=$(now)
    startSkiff
    restarted "$t0" "$dir/admin.kubeconfig" "$(cat "$dir/skiff.pid")"
  fi
  "$program" down --purge --name bench --data-dir "$dir" >/dev/null
  letGo
}

# nothing is the server that does nothing; how long it takes to start says nothing either.
nothing() {
  system=nothing
  local pid
  "$work/floor" --kubeconfig "$work/floor.kubeconfig" --objects "$objects" 2>/dev/null & pid=$!; pids+=("$pid")
  until [ -s "$work/floor.kubeconfig" ]; do sleep 0.01; done
  report "$ready (s)" 0 less
  measure "$work/floor.kubeconfig" "$pid"
  rm "$work/floor.kubeconfig"
  stop
}

systems=(skiff)
[ $parts != kubelets ] || go build -o "$work/kubelets" ./test/bench/kubelets
case $parts in custom | definitions) go build -o "$work/custom" ./test/bench/custom;; loops) go build -o "$work/loops" ./test/bench/loops;; esac
if [ $parts = floor ]; then
  go build -o "$work/floor" ./test/bench/floor
  systems=(nothing skiff)
fi
baseline=${BEFORE:+before} baseline=${baseline:-upstream}
for round in $(seq "$rounds"); do $baseline; for each in "${systems[@]}"; do $each; done; done
python3 test/bench/table.py "$work" "$rounds" $baseline "${systems[@]}"
