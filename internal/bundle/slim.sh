#!/bin/bash
# Writes build/slim/go.mod, with which `make` builds skiff: go.mod with one change to one module.
# The linker leaves out methods that nothing calls, unless something reachable looks methods up by reflection. Of all that skiff links, go-cmp
# alone does, where it spells out the methods of a nameless interface in a report that etcd makes of its own mistakes when it is told to look for
# them. Without it bin/skiff is 25 MB smaller. (Package text/template is the other one of that kind: skiff has none of it.)
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go} module=github.com/google/go-cmp
$go mod download $module
read -r version source < <($go list -m -f '{{.Version}} {{.Dir}}' $module)
mkdir -p build/slim
exec 9>build/slim/lock && flock 9 # one at a time
copy=build/slim/go-cmp-$version
if [ ! -e "$copy" ]; then
	rm -rf build/slim/go-cmp-* build/slim/part
	cp -r "$source" build/slim/part
	chmod -R u+w build/slim/part
	names=build/slim/part/cmp/internal/value/name.go
	sed -i '/for i := 0; i < t.NumMethod(); i++ {$/,/^\t\t}$/c\		b = append(b, "..."...)' $names
	if grep -q 'Method(' $names; then
		echo 'slim.sh: the change to go-cmp no longer fits its source' >&2
		exit 1
	fi
	mv build/slim/part "$copy"
fi
cp go.sum build/slim/go.sum
cp go.mod build/slim/go.mod.part
$go mod edit -replace "$module=./$copy" build/slim/go.mod.part
mv build/slim/go.mod.part build/slim/go.mod
