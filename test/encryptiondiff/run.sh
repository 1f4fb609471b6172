#!/bin/bash
# Compares how values are encrypted, and which configurations are refused, with upstream's package, v0.37.1.
#   run.sh [-record]   (-record writes upstream's values and errors to the test data)
set -eu
cd "$(dirname "$0")"
exec go run . "$@"
