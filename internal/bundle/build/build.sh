#!/bin/bash
# Builds what a node needs beside skiff (containerd, its runc shim, runc, CNI plugins, pause) from the modules that go.mod names, and puts
# it, with bin/kubectl and the licences of all that is shipped, where skiff is built with it: internal/bundle/embedded.
# What was built from the same sources is under build/bundle and is not built again. The first time takes about four minutes on 2 cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/../../.." && pwd)
go=${GO:-go} into=$root/internal/bundle/embedded
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
say() { echo "bundle: $*" >&2; }
again() { for wait in 5 20 60 0; do "$@" && return 0; sleep $wait; done; say "failed: $*"; return 1; } # networks have bad moments

packages() { # of Debian, where they are missing
	local missing=()
	for p in gcc libc6-dev libseccomp-dev pkg-config; do
		dpkg-query -W -f '${Status}' $p 2>/dev/null | grep -q 'ok installed' || missing+=($p)
	done
	[ ${#missing[@]} = 0 ] && return
	say "installing ${missing[*]}"
	again apt-get update -qq >&2
	again env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

inputs() { # what the result depends on
	$go version
	dpkg-query -W -f '${Package} ${Version}\n' gcc libc6-dev libseccomp-dev
	cd "$root" && find internal/bundle/build internal/bundle/pack internal/bundle/patches -type f | LC_ALL=C sort | xargs sha256sum
}

changed() { # MODULE NAME: a copy of a module to make changes in, which is built in its place
	cp -r "$(cd "$here" && $go list -m -f '{{.Dir}}' "$1")" "$work/$2"
	chmod -R u+w "$work/$2"
	(cd "$work" && $go mod edit -replace "$1=../../../build/bundle/work/$2" go.mod) # from here, so that where skiff's source is changes nothing
}

changes() { # what we do otherwise than upstream; notices.go says so too
	cp "$here/go.mod" "$here/go.sum" "$work/"
	# The CNI plugins masquerade without running nft or iptables.
	changed github.com/containernetworking/plugins plugins
	rm "$work"/plugins/pkg/ip/ipmasq_*.go
	cp "$here/ip/ipmasq_linux.go" "$work/plugins/pkg/ip/"
	changed github.com/containerd/containerd/v2 containerd
	"$here/../patches/apply.sh" "$work/containerd" containerd.patch
}

compile() { # OUT TAGS LDFLAGS PACKAGE...
	local out=$1 tags=$2 flags=$3; shift 3
	(cd "$here" && $go build -modfile "$work/go.mod" -mod mod -trimpath -tags "$tags" -ldflags "-s -w $flags" -o "$out" "$@")
}

runtime() {
	local stage=$work/stage containerd=github.com/containerd/containerd/v2 cni=github.com/containernetworking/plugins/plugins
	local version; version=$(cd "$here" && $go list -m -f '{{.Version}}' $containerd)
	local runc; runc=$(cd "$here" && $go list -m -f '{{.Version}}' github.com/opencontainers/runc)
	mkdir -p "$stage"/{bin,cni,images}
	say 'getting sources'
	(cd "$here" && again $go mod download)
	changes
	local without='urfave_cli_no_docs no_btrfs no_devmapper no_zfs no_tracing'
	say "building containerd $version"
	CGO_ENABLED=0 compile "$stage/bin/" "$without" "-X $containerd/version.Version=$version" $containerd/cmd/containerd
	say 'building its shim'
	CGO_ENABLED=0 compile "$stage/bin/" "$without no_grpc" "-X $containerd/version.Version=$version" $containerd/cmd/containerd-shim-runc-v2
	say "building runc $runc"
	CGO_ENABLED=1 compile "$stage/bin/" 'seccomp netgo osusergo urfave_cli_no_docs' '-extldflags -static' github.com/opencontainers/runc
	say 'building CNI plugins'
	CGO_ENABLED=0 compile "$stage/cni/" '' '' $cni/main/{bridge,loopback,ptp} $cni/ipam/host-local
	say "building skiff's own CNI plugin and pause"
	gcc -Os -Wall -Wextra -Werror -static -s -Wl,--build-id=none -o "$stage/cni/skiff" "$here/skiff-cni.c"
	mkdir "$work/pause"
	gcc -Os -Wall -Wextra -Werror -static -s -Wl,--build-id=none -o "$work/pause/pause" "$here/pause.c"
	cp "$here/Dockerfile" "$work/pause/"
	touch -d @0 "$work/pause/pause"
	local image; image=skiff.internal/pause:$(sha256sum "$work/pause/pause" | cut -c1-12)
	(cd "$root" && $go run ./internal/bundle/pack image "$work/pause" "$image" "$stage/images/pause.tar")
	printf '{"pause":"%s","containerd":"%s","runc":"%s"}\n' "$image" "$version" "$runc" >"$stage/bundle.json"
	$go version -m "$stage/bin" "$stage/cni" | sed "s,^$stage/,," >"$work/programs" # for the bill of materials
	(cd "$root" && $go run ./internal/bundle/pack tree "$stage" "$work/runtime.tar.zst")
	say 'collecting licences'
	(cd "$here" && $go list -deps -f '{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}' tool | sort -u) >"$work/modules"
	for p in libc6-dev libseccomp-dev; do cp /usr/share/doc/$p/copyright "$work/$p.copyright"; done
	cp /usr/share/common-licenses/LGPL-2.1 "$work/LGPL-2.1"
}

notices() { # of everything that is in bin/skiff
	(cd "$root" && $go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/skiff ./cmd/kubectl) | sort -u - "$done/modules" >"$tmp/modules"
	(cd "$root" && $go run ./internal/bundle/pack notices "$tmp/modules" "$into/notices.zst" "$done/libseccomp-dev.copyright" "$done/libc6-dev.copyright" "$done/LGPL-2.1")
}

put() { # FILE NAME: where skiff is built with it, beside its hash, which is not there while they might not fit
	cmp -s "$1" "$into/$2.zst" && [ -e "$into/$2.hash" ] && return # what does not change is not built with again
	rm -f "$into/$2.hash"
	cp "$1" "$into/$2.part"
	mv "$into/$2.part" "$into/$2.zst"
	sha256sum <"$1" | cut -c1-16 | tr -d '\n' >"$into/$2.hash"
}

mkdir -p "$into" "$root/build/bundle"
exec 9>"$root/build/bundle/lock" && flock 9 # one at a time
packages
done=$root/build/bundle/$(inputs | sha256sum | cut -c1-16) work=$root/build/bundle/work tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$work"' EXIT
if [ ! -e "$done/runtime.tar.zst" ]; then
	rm -rf "$work" "$done"
	mkdir "$work" "$done"
	runtime
	mv "$work"/{modules,programs,*.copyright,LGPL-2.1} "$done/"
	mv "$work/runtime.tar.zst" "$done/"
fi
put "$done/runtime.tar.zst" runtime.tar
cp "$done/programs" "$root/build/bundle/programs"
sum=$({ sha256sum <"$root/bin/kubectl"; cat "$root/go.sum" "$done/modules"; } | sha256sum | cut -c1-16)
if [ "$(cat "$into/made" 2>/dev/null)" != "$sum" ]; then
	(cd "$root" && $go run ./internal/bundle/pack file bin/kubectl "$tmp/kubectl.zst")
	put "$tmp/kubectl.zst" kubectl
	notices
	echo "$sum" >"$into/made"
fi
ls -1dt "$root"/build/bundle/*/ | tail -n +4 | xargs -r rm -rf # the last three are kept
