#!/usr/bin/env bash
# Measures what definitions cost that nobody uses: how long one kubectl takes to create them, and the memory of the server before and after.
#   test/bench/definitions.sh [COUNT FIELDS]      1,000 definitions of 9.6 kB (26 fields), and 125 of 116 kB (330 fields), if none is given
# KUBECTL is the kubectl to create them with (bin/kubectl).
set -euo pipefail
cd "$(dirname "$0")/../.."
kubectl=${KUBECTL:-bin/kubectl}
work=$(mktemp -d)
up() { bin/skiff up --no-node --name definitions --data-dir "$work/skiff" --port "$port" >/dev/null; }
trap 'bin/skiff down --purge --name definitions --data-dir "$work/skiff" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
export KUBECONFIG=$work/skiff/admin.kubeconfig
anonymous() { awk '/^RssAnon/{printf "%.0f", $2/1000}' "/proc/$(pgrep -f "skiff server.*$work/skiff" | head -n 1)/status"; }
seconds() { local t0; t0=$(date +%s.%N); "$@" >/dev/null; awk "BEGIN{printf \"%.1f\", $(date +%s.%N)-$t0}"; }

established() { "$kubectl" get crd -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Established")].status}{"\n"}{end}' 2>/dev/null | grep -c True; }

write() { # COUNT FIELDS
  python3 - "$1" "$2" >"$work/definitions.json" <<'PY'
import json, sys
count, fields = int(sys.argv[1]), int(sys.argv[2])
def definition(n):
    spec = {f"field{i}": {"type": "object", "description": f"A field that says something about the wanted state of the object, number {i}.",
        "properties": {"name": {"type": "string", "description": "The name of the thing that is referred to, in the same namespace."},
                       "count": {"type": "integer", "format": "int32", "minimum": 0}, "enabled": {"type": "boolean"}}} for i in range(fields)}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    group = f"group{n % 20}.example.com"
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"things{n}.{group}"}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": f"things{n}", "singular": f"thing{n}", "kind": f"Thing{n}"},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}}
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": [definition(n) for n in range(count)]}))
PY
}

measure() { # COUNT FIELDS
  write "$1" "$2"
  up; sleep 6
  local before took openapi start; before=$(anonymous)
  took=$(seconds "$kubectl" create --validate=false -f "$work/definitions.json")
  until [ "$(established)" = "$1" ]; do sleep 0.1; done
  sleep 15
  echo "$1 definitions of $(($(stat -c %s "$work/definitions.json") / $1 / 1000)) kB: created in $took s, anonymous memory $before MB before and $(anonymous) MB 15 s after"
  openapi=$(seconds "$kubectl" get --raw /openapi/v2)
  bin/skiff stop --name definitions --data-dir "$work/skiff" >/dev/null
  start=$(seconds up)
  echo "  first /openapi/v2 in $openapi s, started again in $start s"
  bin/skiff down --purge --name definitions --data-dir "$work/skiff" >/dev/null
}

if [ $# -gt 0 ]; then measure "$1" "$2"; else measure 1000 26; measure 125 330; fi
