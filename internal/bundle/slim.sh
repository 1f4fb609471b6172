#!/bin/bash
# Writes build/slim/go.mod, with which `make` builds and tests skiff: go.mod with the patches of two modules that skiff links.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go} patches=internal/bundle/patches
mkdir -p build/slim
exec 9>build/slim/lock && flock 9 # one at a time
cp go.sum build/slim/go.sum
cp go.mod build/slim/go.mod.part
# patch MODULE NAME: replaces a module by a copy with NAME.patch applied.
patch() {
	local module=$1 name=$2 version source copy
	$go mod download "$module"
	read -r version source < <($go list -m -f '{{.Version}} {{.Dir}}' "$module")
	copy=build/slim/$name-$version-$(sha256sum <"$patches/$name.patch" | cut -c1-8)
	if [ ! -e "$copy" ]; then
		rm -rf build/slim/"$name"-* build/slim/part
		cp -r "$source" build/slim/part
		chmod -R u+w build/slim/part
		$patches/apply.sh build/slim/part "$name.patch"
		mv build/slim/part "$copy"
	fi
	$go mod edit -replace "$module=./$copy" build/slim/go.mod.part
}
patch github.com/google/go-cmp go-cmp
patch k8s.io/apimachinery apimachinery
mv build/slim/go.mod.part build/slim/go.mod
