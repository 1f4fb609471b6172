#!/bin/bash
# fuzz.sh TIME [go test flags]: runs every fuzz target of the tree for that long. The first input that fails one is kept in testdata/fuzz of its package.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=$1
shift
count=0
while IFS=: read -r file target; do
	echo "fuzz: $target of $(dirname "$file")"
	$go test "$@" -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")"
	count=$((count + 1))
done < <(git ls-files '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9]+' | sed 's/func //' | LC_ALL=C sort)
[ $count -gt 0 ] || { echo 'fuzz: no target found' >&2; exit 1; }
echo "fuzz: $count targets, nothing found"
