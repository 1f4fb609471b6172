#!/bin/bash
# Compares package scheduling with kube-scheduler v1.37.1's plugins on random clusters; builds upstream's packages on first use.
#   run.sh [-seed N] [-count N]   compares (1,000 clusters from seed 1 unless told otherwise)
#   run.sh record                 also writes down what kube-scheduler says, for `go test ./internal/scheduling` to replay
set -eu
cd "$(dirname "$0")"
if [ "${1:-}" = record ]; then
  shift
  set -- -record ../../internal/scheduling/testdata/kube-scheduler-v1.37.1.txt.gz "$@"
fi
exec go run . "$@"
