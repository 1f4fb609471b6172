#!/bin/sh
# Says whether the documents and the merge schema that are checked in are those that generate.sh writes today, and whether
# they are those of Kubernetes.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/openapi" "$tmp/managedfields/mergeschema"

# The generator leaves a compressed file alone whose content is right, so it starts from those there are.
cp -r ../documents ../added "$tmp/openapi/"
./generate.sh "$tmp"
status=0
diff -r ../documents "$tmp/openapi/documents" || status=1
diff -r ../added "$tmp/openapi/added" || status=1
diff ../zz_generated_index.go "$tmp/openapi/zz_generated_index.go" || status=1
for file in ../../managedfields/mergeschema/zz_generated_*.go "$tmp"/managedfields/mergeschema/zz_generated_*.go; do
	name=$(basename "$file")
	diff "../../managedfields/mergeschema/$name" "$tmp/managedfields/mergeschema/$name" || status=1
done
if [ $status != 0 ]; then
	echo "not up to date: run go generate ./internal/apiserver/openapi" >&2
	exit $status
fi
GOFLAGS="${GOFLAGS:-} -mod=mod" go test ./compare
