#!/bin/bash
# Builds the images of the demo and of tests, nginx, busybox and testserver, as archives for `skiff image load`, with no image registry:
# from Debian's packages and from Go. What was built from the same sources is not built again.
#   build.sh OUT [NAME...]    those three, or the named ones; only by name: postgres (PostgreSQL 15)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "${1:-$root/build/images}" && cd "${1:-$root/build/images}" && pwd)
go=${GO:-go}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { echo "images: $*" >&2; }
again() { for wait in 5 20 60 0; do "$@" && return 0; sleep $wait; done; say "failed: $*"; return 1; } # networks have bad moments

unpack() { # DIR PACKAGE...: the files of Debian packages, without what is only for reading
	local dir=$1; shift
	command -v dpkg-deb >/dev/null || { say 'these images are made of Debian packages: this needs apt-get and dpkg-deb'; return 1; }
	mkdir -p "$dir" "$work/debs"
	(cd "$work/debs" && rm -f ./*.deb && { apt-get download -qq -o APT::Sandbox::User=root "$@" 2>/dev/null || { again apt-get update -qq && again apt-get download -qq -o APT::Sandbox::User=root "$@"; }; } >&2)
	for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$dir"; done
	rm -rf "$dir"/usr/share/{doc,man,lintian,locale,bash-completion,initramfs-tools} "$dir"/usr/lib/*/gconv "$dir"/etc/{default,init.d,logrotate.d,ufw} "$dir"/lib/systemd
}

shell() { # DIR: busybox and links to it for each of its commands, unless there is a program of that name
	mkdir -p "$1"/{bin,etc,root,run,tmp,var}
	chmod 1777 "$1/tmp"
	chmod 700 "$1/root"
	for command in $("$1/bin/busybox" --list); do
		[ "$command" = busybox ] || [ -e "$1/bin/$command" ] || ln -s busybox "$1/bin/$command"
	done
}

busybox() {
	unpack "$1/rootfs" busybox-static
	shell "$1/rootfs"
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$1/rootfs/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$1/rootfs/etc/group"
}

nginx() { # as docker.io's has it: nginx in the foreground, its pages in /usr/share/nginx/html, workers as user nginx (101)
	local to=$1/rootfs
	unpack "$to" nginx nginx-common libc6 libcrypt1 libpcre2-8-0 libssl3 zlib1g busybox-static
	shell "$to"
	rm -rf "$to"/etc/nginx/{sites-available,sites-enabled,snippets,modules-available,modules-enabled} "$to/var/www" "$to/usr/share/nginx/modules-available"
	mkdir -p "$to"/etc/nginx/conf.d "$to"/var/lib/nginx "$to"/var/log/nginx
	cp "$here/nginx/nginx.conf" "$to/etc/nginx/"
	cp "$here/nginx/default.conf" "$to/etc/nginx/conf.d/"
	ln -sf /dev/stdout "$to/var/log/nginx/access.log"
	ln -sf /dev/stderr "$to/var/log/nginx/error.log"
	printf 'root:x:0:0:root:/root:/bin/sh\nnginx:x:101:101:nginx:/nonexistent:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$to/etc/passwd"
	printf 'root:x:0:\nnginx:x:101:\nnogroup:x:65534:\n' >"$to/etc/group"
}

postgres() { # PostgreSQL without its compiler of queries, as user postgres with the number that operators expect (26)
	local to=$1/rootfs
	unpack "$to" postgresql-15 postgresql-client-15 busybox-static tzdata netbase libc6 libc-bin libgcc-s1 libstdc++6 libpq5 libssl3 zlib1g libzstd1 liblz4-1 liblzma5 \
		libxml2 libxslt1.1 libicu72 libldap-2.5-0 libsasl2-2 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libpam0g libaudit1 libcap-ng0 \
		libsystemd0 libcap2 libgcrypt20 libgpg-error0 libuuid1 libreadline8 libtinfo6 libgnutls30 libhogweed6 libnettle8 libgmp10 libp11-kit0 libffi8 libidn2-0 libunistring2 \
		libtasn1-6 libselinux1 libpcre2-8-0 libcrypt1
	rm -rf "$to"/usr/lib/postgresql/15/lib/{bitcode,llvmjit*}
	shell "$to"
	for program in "$to"/usr/lib/postgresql/15/bin/*; do ln -sf "../lib/postgresql/15/bin/${program##*/}" "$to/usr/bin/"; done
	mkdir -p "$to/var/lib/postgresql" "$to/var/run/postgresql"
	chmod 1777 "$to/var/lib/postgresql" "$to/var/run/postgresql"
	printf 'root:x:0:0:root:/root:/bin/sh\npostgres:x:26:26:postgres:/var/lib/postgresql:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$to/etc/passwd"
	printf 'root:x:0:\npostgres:x:26:\nnogroup:x:65534:\n' >"$to/etc/group"
}

testserver() {
	(cd "$root" && CGO_ENABLED=0 $go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$1/testserver" ./test/images/testserver)
}

build() { # NAME TAG
	local name=$1 tag=$2 sum
	sum=$({ cat "$here/build.sh"; cat "$here/$name"/*; dpkg --print-architecture; } | sha256sum | cut -c1-16)
	[ -e "$out/$name.tar" ] && [ "$(cat "$out/$name.sum" 2>/dev/null)" = "$sum" ] && return
	say "building $tag"
	mkdir "$work/$name"
	cp "$here/$name/Dockerfile" "$work/$name/"
	"$name" "$work/$name"
	find "$work/$name" -mmin -60 -exec touch -h -d @0 {} + # what was made now has no time, so that the same files make the same layer
	(cd "$root" && "${SKIFF:-bin/skiff}" image build --tag "$tag" --output "$out/$name.tar" "$work/$name" >/dev/null)
	echo "$sum" >"$out/$name.sum"
}

shift $(($# > 0))
[ $# -gt 0 ] || set -- busybox nginx testserver
for name; do
	case $name in
	busybox | nginx) build "$name" "$name:latest" ;;
	testserver) build testserver skiff.internal/testserver:latest ;;
	postgres) build postgres skiff.internal/postgres:15 ;;
	*) say "there is no image $name"; exit 2 ;;
	esac
done
