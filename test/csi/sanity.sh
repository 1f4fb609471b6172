#!/usr/bin/env bash
# sanity.sh: runs csi-sanity, the test of CSI drivers that others wrote, on the driver in this folder, as root. Everything is in a temporary folder and undone.
set -euo pipefail
cd "$(dirname "$0")"
version=v5.6.0
work=$(mktemp -d)
trap 'kill "$driver" 2>/dev/null || true; wait "$driver" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
driver=
export CGO_ENABLED=0
sanity=${CSI_SANITY:-}
if [ -z "$sanity" ]; then
	source=$(go mod download -json "github.com/kubernetes-csi/csi-test/v5@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cp -r "$source" "$work/csi-test" && chmod -R u+w "$work/csi-test"
	(cd "$work/csi-test" && GOFLAGS="-buildvcs=false -mod=mod" go build -o "$work/csi-sanity" ./cmd/csi-sanity)
	sanity=$work/csi-sanity
fi
go build -o "$work/csi" .
attach=${1:-}
"$work/csi" --dir "$work/storage" --endpoint "$work/csi.sock" --node n1 $attach &
driver=$!
for _ in $(seq 100); do [ -S "$work/csi.sock" ] && break; sleep 0.05; done
mkdir -p "$work/mount"
"$sanity" --csi.endpoint "$work/csi.sock" --csi.mountdir "$work/mount/target" --csi.stagingdir "$work/mount/staging" --ginkgo.no-color
if grep -q "$work" /proc/self/mountinfo; then
	echo "still mounted:"; grep "$work" /proc/self/mountinfo; exit 1
fi
