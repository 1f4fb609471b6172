#!/usr/bin/env bash
# Types what an operator types to see load, to have replicas follow it, and to empty a node that a budget protects, and compares the answers with expected.txt.
#   test/scaling/run.sh [--update]     --update writes expected.txt
# Two nodes with real containers, whose load is real. Numbers that vary are printed as N. Needs root, bin/skiff, bin/kubectl and build/images; about two
# minutes. The cluster runs on a machine of its own, as far as namespaces make one. WORK is where its logs are; without it they are removed.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
skiff=${SKIFF:-$repo/bin/skiff} images=${IMAGES:-$repo/build/images}

main() {
  [ "$(id -u)" = 0 ] || { echo 'run.sh: nodes need root' >&2; exit 1; }
  export work=${WORK:-$(mktemp -d)}
  mkdir -p "$work"; work=$(cd "$work" && pwd)
  local result=0
  unshare --net --mount --pid --ipc --fork --kill-child=KILL --mount-proc bash "${BASH_SOURCE[0]}" inside >"$work/output" || result=$?
  if [ $result != 0 ]; then cat "$work/output"
  elif [ "${1:-}" = --update ]; then cp "$work/output" "$here/expected.txt"
  else diff "$here/expected.txt" "$work/output" && echo "all answers are as in $here/expected.txt" || result=1
  fi
  [ -n "${WORK:-}" ] || rm -rf "$work"
  exit $result
}

kubectl() { "${KUBECTL:-$repo/bin/kubectl}" --kubeconfig "$data/admin.kubeconfig" "$@"; }
down() { "$skiff" down --purge --name scaling --data-dir "$data" >"$work/down.log" 2>&1 || cat "$work/down.log" >&2; }
fail() { echo "run.sh: $*" >&2; kubectl get nodes,pods,hpa,pdb -A >&2 || true; exit 1; }
wait_for() { # SECONDS CMD...
  local until=$((SECONDS + $1)); shift
  until "$@" >"$work/wait_for" 2>&1; do [ $SECONDS -lt $until ] || fail "waited in vain for: $*: $(tail -c 400 "$work/wait_for")"; sleep 0.5; done
}

# say TEXT: what comes now.
say() { echo; echo "# $*"; }

# typed ARGS...: runs kubectl and prints what was typed and what it answered, without what varies.
typed() {
  echo "\$ kubectl $*"
  { kubectl "$@" 2>&1 || echo "(it failed)"; } | sed -E 's/[0-9]+m\b/Nm/g; s/[0-9]+Mi\b/NMi/g; s/\b[0-9]+%/N%/g; s/-[a-z0-9]{8,10}-[a-z0-9]{5}\b/-…/g; s/ +/ /g; s/ $//'
}

node=scaling-1
numbers() { [ "$(kubectl top nodes --no-headers | grep -c '[0-9]%')" = 2 ] && [ "$(kubectl top pods --no-headers | wc -l)" = 1 ]; }
replicas() { [ "$(kubectl get deployment "$1" -o 'jsonpath={.status.readyReplicas}')" = "$2" ]; }
burning() { [ "$(kubectl top pods -l app=burn --no-headers | awk '{sum += $2} END {print (sum > 100)}')" = 1 ]; }

inside() {
  data=$work/data
  export HOME=$work/home KUBECONFIG=; mkdir -p "$HOME" "$data"
  mount --make-rprivate /; mount --make-rshared /
  local dir
  for dir in /run /var/lib/cni /etc/cni /opt/cni; do [ ! -d $dir ] || mount -t tmpfs -o mode=755 tmpfs $dir; done
  ip link set lo up
  trap 'cp "$data"/*.log "$work/" 2>/dev/null || true; down' EXIT
  trap 'exit 130' INT TERM
  "$skiff" up --name scaling --nodes 2 --data-dir "$data" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
  "$skiff" image load --data-dir "$data" "$images/busybox.tar" >/dev/null
  work
}

work() {
  say "A Deployment that burns a core's fifth while there is a file /load in its first pod."
  typed apply -f "$here/burn.yaml" | sed "s|$here/||"
  wait_for 60 replicas burn 1
  kubectl exec deployment/burn -- touch /load
  wait_for 90 numbers
  wait_for 90 burning
  typed top nodes --no-headers
  typed top pods
  typed top pods --containers

  say "Replicas follow the load."
  typed autoscale deployment burn --cpu=50% --min=1 --max=3
  kubectl patch hpa burn --type merge -p '{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":15}}}}' >/dev/null
  wait_for 90 replicas burn 3
  typed get hpa burn --no-headers -o custom-columns=NAME:.metadata.name,MIN:.spec.minReplicas,MAX:.spec.maxReplicas,NOW:.status.currentReplicas,WANTED:.status.desiredReplicas
  local pod; for pod in $(kubectl get pods -l app=burn -o name); do kubectl exec "$pod" -- rm -f /load; done
  wait_for 150 replicas burn 1
  typed events --for hpa/burn --types Normal --no-headers | sed -E 's/^[0-9a-z]+ (\([^)]*\) )?//' | sort -u

  say "A budget holds the drain of a node until there is a second pod elsewhere."
  typed create poddisruptionbudget burn --selector app=burn --min-available 1
  node=$(kubectl get pods -l app=burn -o 'jsonpath={.items[0].spec.nodeName}')
  wait_for 30 budgeted
  typed drain "$node" --ignore-daemonsets --timeout 6s | sed "s/$node/NODE/g" | grep -v '^evicting' | sort -u
  typed delete hpa burn
  typed scale deployment burn --replicas 2
  wait_for 60 replicas burn 2
  typed drain "$node" --ignore-daemonsets --timeout 60s | sed "s/$node/NODE/g" | sort -u
  wait_for 60 replicas burn 2
  typed get pods -l app=burn --no-headers -o custom-columns=STATUS:.status.phase
  typed uncordon "$node" | sed "s/$node/NODE/g"
}
budgeted() { [ "$(kubectl get pdb burn -o 'jsonpath={.status.currentHealthy} {.status.disruptionsAllowed}')" = "1 0" ]; }

case ${1:-} in inside) inside;; *) main "$@";; esac
