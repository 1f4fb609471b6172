#!/usr/bin/env bash
# Runs specs of upstream's e2e suite against `skiff up` with a node on this machine, and writes docs/conformance.md.
#   test/conformance/run.sh [NAME | NAME=LIST...]       node (../shared/upstream/node-specs.txt), and node-more, network, control, extend, extend-two and state, whose lists are beside this file, if none is given
#   test/conformance/run.sh external-local external-csi    the specs of External Storage for our own class and for a CSI driver in pods
#   test/conformance/run.sh fairness       API priority and fairness, on a cluster whose only node is hollow
#   test/conformance/run.sh apps storage autoscaling    beyond conformance: what else the suite has about workloads, volumes and autoscalers (about two hours)
# A LIST has the title of a spec per line; `network`, `control`, `state`, `apps`, `storage` and `extend-two` (the list of extend) run on a cluster of two nodes (`skiff up --nodes 2`), `autoscaling` on four. What became of each is kept in results/NAME.txt, and docs/conformance.md is written from all of those.
#
# `external-csi` is for the CSI driver in test/csi, with the sidecars of test/operators beside it in pods, on a node made of namespaces: on the machine itself the driver's manifest would need another path.
# `external-local` is for skiff's default StorageClass. What each can do is said in NAME.yaml, from which the suite makes its specs: `e2e.test --list-tests --storage.testdriver=NAME.yaml`.
#
# The suite, the programs in its images and the images are built into $UPSTREAM (beside the repository; about 25 minutes and 3 GB the first time). The
# cluster and the suite run on a machine of their own, as far as namespaces make one, and leave nothing behind. PROCS is how many specs run at once.
# FOCUS, a regular expression, narrows the lists while working on something: nothing is written then but $WORK. WORK (build/conformance) is where logs and reports go.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
shared=$(cd "$repo/.." && pwd)/shared/upstream
skiff=${SKIFF:-$repo/bin/skiff}

main() {
  [ $# -gt 0 ] || set -- node node-more network control extend extend-two state
  [ "$(id -u)" = 0 ] || { echo 'run.sh: a node needs root' >&2; exit 1; }
  mkdir -p "${UPSTREAM:-$repo/../up}"; up=$(cd "${UPSTREAM:-$repo/../up}" && pwd)
  work=${WORK:-$repo/build/conformance}
  mkdir -p "$work"; work=$(cd "$work" && pwd)
  build
  echo "logs and reports are in $work"
  for list; do
    local name=${list%%=*} file=${list#*=} started=$SECONDS commit; [ "$name" != "$list" ] || file=$(listOf "$name")
    commit=$(git -C "$repo" describe --always --dirty --match= 2>/dev/null || echo unknown)
    rm -rf "${work:?}/$name"; mkdir -p "$work/$name/reports"
    python3 "$here/report.py" focus "$file" "${FOCUS:-}" > "$work/$name/focus"
    local nodes= procs=${PROCS:-4}; case $name in network|control|state|apps|storage|autoscaling|extend-two) nodes=2;; external-csi) nodes=1;; esac
    case $name in autoscaling) nodes=4 procs=2;; esac # a spec's pods ask for 2.5 processors, and take up to one
    local driver=; [ ! -e "$here/$name.yaml" ] || driver=$here/$name.yaml
    case $name in external-*) storage;; storage) crictl;; autoscaling) consumer;; esac
    export up work name procs skiff nodes driver
    unshare --net --mount --pid --ipc --fork --kill-child=KILL --mount-proc bash "${BASH_SOURCE[0]}" inside || echo "the suite ended with code $?"
    ls "$work/$name/reports"/junit_*.xml >/dev/null 2>&1 || { echo "run.sh: the suite did not run: see $work/$name" >&2; exit 1; }
    if [ -n "${FOCUS:-}" ]; then
      python3 "$here/report.py" show "$work/$name/reports"
    else
      python3 "$here/report.py" results "$file" "$work/$name/reports" $((SECONDS - started)) "$commit" > "$work/$name/results"
      mv "$work/$name/results" "$here/results/$name.txt"
      python3 "$here/report.py" document "$here" > "$work/conformance.md"
      mv "$work/conformance.md" "$repo/docs/conformance.md"
      grep '^# ' "$here/results/$name.txt"
    fi
  done
}

listOf() {
  case $1 in
    node) echo "$shared/node-specs.txt";;
    extend-two) echo "$here/extend.txt";;
    *) [ -e "$here/$1.txt" ] || { echo "run.sh: there is no list $1" >&2; exit 2; }; echo "$here/$1.txt";;
  esac
}

build() {
  [ -x "$skiff" ] || { echo "run.sh: $skiff is not there: make" >&2; exit 1; }
  "$shared/build.sh" "$up" etcd agnhost e2e.test ginkgo kubectl sample-apiserver
  [ -e "$up/images/made-with-wget" ] && return
  local missing=
  for p in debootstrap:debootstrap busybox:busybox-static bash-static:bash-static gcc:gcc make:make curl:curl bzip2:bzip2; do
    type -P "${p%:*}" >/dev/null || missing="$missing ${p#*:}"
  done
  [ -z "$missing" ] || { apt-get update -qq && apt-get install -y -qq $missing; } >/dev/null
  busybox
  mkdir -p "$up/lab"; ln -sfn "$up" "$up/lab/bin"
  # The recipe takes Debian's busybox, with bash for a shell, as that busybox drops variables with a dash in their names, and a script in bash for its wget.
  # A spec compares what the shell says with what busybox's says, so its place and its shell's are taken by the busybox that upstream's image has, wget too.
  sed 's|^    put(t, "bin/wget".*|    put(t, "bin/wget", link="busybox")|' "$shared/e2e-images.py" > "$up/lab/images.py"
  GOMODCACHE=$(go env GOMODCACHE) unshare --mount bash -euc 'for to in /bin/busybox /bin/bash-static; do mount --bind "$0" "$(readlink -f $to)"; done; exec python3 "$@"' \
    "$up/busybox" "$up/lab/images.py" "$up/lab" "$up/images"
  touch "$up/images/made-with-wget"
}

storage() { # what the specs of External Storage need beside the suite: mkfs.xfs, or the CSI driver, the sidecars of others and an image for the driver
  type -P mkfs.xfs >/dev/null || { apt-get update -qq && apt-get install -y -qq xfsprogs; } >/dev/null
  [ "$name" = external-csi ] || return 0
  "$repo/test/operators/run.sh" --build external-attacher external-provisioner external-resizer external-snapshotter
  (cd "$repo/test/csi" && CGO_ENABLED=0 go build -o "$up/csi-directories" .)
  SKIFF=$skiff "$repo/test/images/build.sh" "$repo/build/images" busybox
}

sidecars() { # runs the CSI driver and the sidecars, as test/operators does
  mkdir -p "$work/$name/log" "$work/$name/programs"
  ln -sfn "$skiff" "$work/$name/programs/skiff"; ln -sfn "$up/kubectl" "$work/$name/programs/kubectl"
  local operators; operators=$(cd "${OPERATORS:-$repo/../operators}" && pwd)
  "$skiff" image load --data-dir "$data" "$repo/build/images/busybox.tar"
  KUBECONFIG=$data/admin.kubeconfig PATH=$work/$name/programs:$PATH data=$data log=$work/$name/log said=$work/$name/log/said lib=$repo/test/operators/lib.sh \
    bin=$operators/bin/any source=$operators/source/any program=$up/csi-directories bash -Eeuo pipefail -c '. "$lib"; . "${lib%/*}/csi.sh"
      driver attach
      sidecar external-attacher external-provisioner external-resizer external-snapshotter
      for name in csi-attacher csi-provisioner csi-resizer; do deployed csi $name; done
      deployed kube-system snapshot-controller'
}

crictl() { # which specs of volumes stop containers with
  [ -x "$up/crictl" ] && return
  local dir src=$up/.src/cri-tools
  dir=$(cd / && GOFLAGS=-mod=mod go mod download -json sigs.k8s.io/cri-tools@v1.36.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  rm -rf "$src"; mkdir -p "$up/.src"; cp -r "$dir" "$src"; chmod -R u+w "$src"
  (cd "$src" && CGO_ENABLED=0 GOWORK=off go build -mod=mod -buildvcs=false -trimpath -ldflags '-s -w' -o "$up/crictl" ./cmd/crictl)
}

consumer() { # the image that takes as much processor time and memory as it is asked to; the recipe's cannot do so
  [ -e "$up/images/made-with-consumer" ] && return
  "$shared/build.sh" "$up" resource-consumer
  local to; to=$(mktemp -d)
  (cd "$up/.src/kubernetes" && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$to/" k8s.io/kubernetes/test/images/resource-consumer/consume-cpu)
  (mkdir "$to/debs" && cd "$to/debs" && { apt-get download -qq -o APT::Sandbox::User=root stress libc6 || { apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root stress libc6; }; }
   mkdir "$to/root" && for deb in *.deb; do dpkg-deb -x "$deb" "$to/root"; done; rm -rf "$to"/root/usr/share)
  cp "$up/resource-consumer" "$to/consumer"
  printf 'FROM scratch\nCOPY root /\nCOPY consumer /consumer\nCOPY consume-cpu /consume-cpu/consume-cpu\nENV PATH=/usr/bin:/bin\nENTRYPOINT ["/consumer"]\n' > "$to/Dockerfile"
  "$skiff" image build --tag registry.k8s.io/e2e-test-images/resource-consumer:1.14 --output "$up/images/resource-consumer_1.14.tar" "$to"
  rm -rf "$to"
  touch "$up/images/made-with-consumer"
}

busybox() { # of the version in upstream's image, as its makers configure it, static
  [ -x "$up/busybox" ] && return
  local src=$up/.src/busybox v=1.37.0
  mkdir -p "$src"
  local mirror; mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -1)
  curl -sfL -o "$src/busybox.tar.bz2" "$mirror/pool/main/b/busybox/busybox_$v.orig.tar.bz2"
  echo "3311dff32e746499f4df0d5df04d7eb396382d7e108bb9250e7b519b837043a4  $src/busybox.tar.bz2" | sha256sum -c --quiet
  tar xjf "$src/busybox.tar.bz2" -C "$src"
  (cd "$src/busybox-$v"
   make defconfig >/dev/null 2>&1
   sed -i 's/^# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/' .config  # tc does not build with every kernel's headers
   make busybox >"$src/make.log" 2>&1 || { tail "$src/make.log" >&2; exit 1; })
  mv "$src/busybox-$v/busybox" "$up/busybox"
}

inside() { # as the first process of namespaces that are ours alone
  mount --make-rprivate /; mount --make-rshared /  # as machines have it, but with nobody else
  for dir in /run /var/lib/cni /etc/cni /opt/cni; do [ ! -d $dir ] || mount -t tmpfs -o mode=755 tmpfs $dir; done
  [ ! -x "$up/crictl" ] || mount -t tmpfs -o mode=755 tmpfs /usr/local/sbin; [ ! -x "$up/crictl" ] || install "$up/crictl" /usr/local/sbin/
  ip link set lo up
  ip link add uplink type veth peer name outside
  ip link set outside up; ip link set uplink up
  ip addr add 192.0.2.10/24 dev uplink
  ip route add default via 192.0.2.1
  export HOME=$work/$name/home KUBECONFIG= data=$work/$name/disk
  mkdir -p "$HOME" "$data"
  trap clean EXIT
  trap 'exit 130' INT TERM
  # A disk of its own: how full this machine's is should not be what is tested.
  truncate -s 40G "$data.ext4"; mkfs.ext4 -q "$data.ext4"
  mount -o loop "$data.ext4" "$data"; data=$data/skiff
  local how=(--hostname-override node-1); [ -z "$nodes" ] || how=(--nodes "$nodes")
  case $name in
    fairness) how=(--no-node --hollow-nodes 1);;
    *) for image in "$up"/images/*.tar; do "$skiff" image load --data-dir "$data" "$image"; done;;
  esac
  "$skiff" up --data-dir "$data" --name "suite-$name" "${how[@]}"
  [ "$name" != external-csi ] || sidecars
  local focus=() title
  while IFS= read -r title; do focus+=(--focus="$title"); done < "$work/$name/focus"
  "$up/ginkgo" --procs="$procs" --no-color --silence-skips --timeout=3h "${focus[@]}" "$up/e2e.test" -- --provider=skeleton --kubeconfig="$data/admin.kubeconfig" \
    --kubectl-path="$up/kubectl" ${driver:+--storage.testdriver="$driver"} --report-dir="$work/$name/reports" > "$work/$name/suite.log" 2>&1
}

clean() {
  cp "$data"/*.log "$work/$name/" 2>/dev/null || true
  "$skiff" down --purge --data-dir "$data" >/dev/null || true
  umount "$work/$name/disk" || true
  rm -rf "$work/$name/disk" "$work/$name/disk.ext4"
}

case ${1:-} in inside) inside;; *) main "$@";; esac
