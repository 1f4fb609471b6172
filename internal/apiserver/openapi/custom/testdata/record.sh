#!/bin/bash
# Records upstream's OpenAPI documents of definitions.yaml beside it:
#   test/differential/upstream.sh run internal/apiserver/openapi/custom/testdata/record.sh
# v2 is kept without what is built in.
set -eu
cd "$(dirname "$0")"
kubectl get --raw /openapi/v2 >"${TMPDIR:-/tmp}/v2-before.$$"
trap 'rm -f "${TMPDIR:-/tmp}/v2-before.$$"' EXIT
kubectl create -f definitions.yaml >/dev/null
kubectl wait --for condition=Established -f definitions.yaml >/dev/null
for version in v1 v1beta1; do
  for _ in $(seq 100); do
    kubectl get --raw /openapi/v3/apis/stable.example.com/$version 2>/dev/null | grep -q '"/apis/stable.example.com/'$version'/owls"' && break
    sleep .2
  done
  kubectl get --raw /openapi/v3/apis/stable.example.com/$version | gzip -9n >v3-$version.json.gz
done
for _ in $(seq 100); do
  kubectl get --raw /openapi/v2 | grep -q stable.example.com/v1beta1/owls/ && break
  sleep .2
done
kubectl get --raw /openapi/v2 | python3 -c '
import json, sys
before, after = json.load(open(sys.argv[1])), json.load(sys.stdin)
sections = ("paths", "definitions", "parameters")
print(json.dumps({s: {k: v for k, v in after[s].items() if before[s].get(k) != v} for s in sections}, sort_keys=True))
' "${TMPDIR:-/tmp}/v2-before.$$" | gzip -9n >v2.json.gz
