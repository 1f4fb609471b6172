#!/bin/bash
# Compares how definitions of nonsense are judged with upstream's validation, v0.37.1.
#   run.sh [-seed N] [-count N]   (30,000 definitions from seed 1 unless told otherwise)
set -eu
cd "$(dirname "$0")"
exec go run . "$@"
