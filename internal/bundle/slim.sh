#!/bin/bash
# Writes build/slim/go.mod, with which `make` builds and tests skiff: go.mod with patches/go-cmp.patch applied to one module.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go} module=github.com/google/go-cmp patches=internal/bundle/patches
$go mod download $module
read -r version source < <($go list -m -f '{{.Version}} {{.Dir}}' $module)
mkdir -p build/slim
exec 9>build/slim/lock && flock 9 # one at a time
copy=build/slim/go-cmp-$version-$(sha256sum <$patches/go-cmp.patch | cut -c1-8)
if [ ! -e "$copy" ]; then
	rm -rf build/slim/go-cmp-* build/slim/part
	cp -r "$source" build/slim/part
	chmod -R u+w build/slim/part
	$patches/apply.sh build/slim/part go-cmp.patch
	mv build/slim/part "$copy"
fi
cp go.sum build/slim/go.sum
cp go.mod build/slim/go.mod.part
$go mod edit -replace "$module=./$copy" build/slim/go.mod.part
mv build/slim/go.mod.part build/slim/go.mod
