#!/usr/bin/env bash
# Builds programs that others wrote, from their modules, has each do its work in pods of a fresh `skiff up`, and writes docs/operators.md.
#   test/operators/run.sh [NAME...]           all programs if none is named
#   test/operators/run.sh --build [NAME...]   only builds them
#   test/operators/run.sh --document          only writes docs/operators.md, from the results that are there
# Needs root, bin/skiff, bin/kubectl and build/images (`make operators` makes them). What became of each is kept in results/NAME.txt; docs/operators.md is written from all of those.
# Modules are copied, built and kept in $OPERATORS (../operators); logs of the last run are in $OPERATORS/log/NAME. What is built is not built again.
#
# A program is a folder NAME beside this file, with
#   program     sourced: module=, version=, programs="PROGRAM=PACKAGE...", does="what it is, in a few words", nodes=, if more than 1, disable=, the parts that it takes the place of, and
#               needs="NAME...", if other programs of these are to be built first, which work.sh finds by `built`. It may define prepare(), which runs in the copy of the module before it is
#               built, to change its go.mod, say.
#   go.mod      only if the module is ours: it is in the folder itself.
#   build.sh    only if `go build` of the packages is not enough: runs in the copy of the module, with $bin where the programs are to be put.
#   work.sh     makes the images, applies the program's own manifests and has it do its work; fails if anything is not as it should be. See lib.sh for what it can call.
#   kustomization.yaml   if there: what lib.sh's `install` applies. Its resources are files of the module, below `source/`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
skiff=${SKIFF:-$repo/bin/skiff} go=${GO:-go} kubectl=${KUBECTL:-$repo/bin/kubectl}
mkdir -p "${OPERATORS:-$repo/../operators}"; operators=$(cd "${OPERATORS:-$repo/../operators}" && pwd)

main() {
  local only_build= failed=
  [ "${1:-}" != --document ] || { document; exit; }
  [ "${1:-}" != --build ] || { only_build=yes; shift; }
  [ $# -gt 0 ] || { cd "$here"; set -- $(ls -d */program); set -- "${@%/program}"; }
  for name; do
    [ -e "$here/$name/program" ] || { echo "run.sh: there is no $here/$name/program" >&2; exit 2; }
    local built=0
    set +e; ( set -e; build "$name" ); built=$?; set -e # in a condition, set -e would do nothing
    if [ $built != 0 ]; then
      failed="$failed $name"
      [ -n "$only_build" ] || ( write_results "$name" failed 0 "failed: it could not be built" )
    elif [ -z "$only_build" ]; then
      run "$name" || failed="$failed $name"
    fi
  done
  [ -n "$only_build" ] || document
  [ -z "$failed" ] || { echo "run.sh: failed:$failed" >&2; exit 1; }
}

describe() { # NAME: sets what its file `program` says
  module= version= programs= does= nodes=1 needs= disable=
  prepare() { :; }
  . "$here/$1/program"
  bin=$operators/bin/$1-$version source=$operators/source/$1-$version
}

retry() { # CMD...: the proxy refuses those who hurry
  for pause in 15 30 60 120 0; do "$@" && return; [ "$pause" = 0 ] || { echo "run.sh: trying again in $pause s: $*" >&2; sleep "$pause"; }; done
  return 1
}

build() { # NAME: its programs in $bin, from a copy of its module in $source that is a main module, so that its replace lines hold
  describe "$1"
  local dir
  for dir in $needs; do ( build "$dir" ) || exit 1; done
  if [ -e "$here/$1/go.mod" ]; then
    dir=$here/$1
    [ ! -e "$bin/made" ] || [ -n "$(find "$dir" -newer "$bin/made" \( -name '*.go' -o -name 'go.*' \))" ] || return 0
    echo "run.sh: building $1" >&2
  else
    [ ! -e "$bin/made" ] || return 0
    echo "run.sh: building $1 from $module@$version" >&2
    dir=$(cd / && GOFLAGS=-mod=mod retry $go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  fi
  [ -n "$dir" ] || { echo "run.sh: $module@$version cannot be downloaded" >&2; exit 1; }
  rm -rf "$source" "$bin"; mkdir -p "$(dirname "$source")" "$bin"
  cp -r "$dir" "$source"; chmod -R u+w "$source"
  cd "$source"
  export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=mod" GOWORK=off bin source version
  prepare
  if [ -e "$here/$1/build.sh" ]; then
    bash -euo pipefail "$here/$1/build.sh"
  else
    for p in $programs; do retry $go build -trimpath -ldflags '-s -w' -o "$bin/${p%%=*}" "${p#*=}" || exit 1; done
  fi
  touch "$bin/made"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

run() { # NAME: has it do its work on a cluster of its own
  describe "$1"
  local name=$1 log=$operators/log/$1 started=$SECONDS result=ok
  rm -rf "$log"; mkdir -p "$log"
  data=$(mktemp -d); said=$log/said; : >"$said"
  trap 'down "$name"; exit 130' INT TERM
  if "$skiff" up --nodes "$nodes" ${disable:+--disable "$disable"} --name "op-$name" --data-dir "$data" --port "$(free_port)" --registry-address "127.0.0.1:$(free_port)" >"$log/up" 2>&1; then
    "$skiff" image load --data-dir "$data" "$repo/build/images/busybox.tar" >/dev/null
    mkdir "$data/work-bin"; ln -s "$kubectl" "$data/work-bin/kubectl"; ln -s "$skiff" "$data/work-bin/skiff"
    (
      export KUBECONFIG=$data/admin.kubeconfig PATH="$data/work-bin:$PATH" data said log bin source version name go here="$here/$name" lib="$here/lib.sh"
      cd "$here"
      exec timeout 20m bash -Eeuo pipefail -c '. "$lib"; . "$here/work.sh"'
    ) || result=failed
    collect
  else
    cat "$log/up" >&2; result=failed; echo "failed: skiff up did not start" >>"$said"
  fi
  down "$name"
  trap - INT TERM
  write_results "$name" "$result" $((SECONDS - started)) "$(cat "$said")"
  echo "run.sh: $name $version: $result in $((SECONDS - started)) s; logs are in $log" >&2
  [ "$result" = ok ]
}

down() { # NAME
  "$skiff" down --purge --name "op-$1" --data-dir "$data" >>"$operators/log/$1/up" 2>&1 || true
  rm -rf "$data"
}

collect() { # logs of all pods, and what happened to them, into $log
  export KUBECONFIG=$data/admin.kubeconfig
  cp "$data/skiff.log" "$log/" 2>/dev/null || true
  "$kubectl" get events -A --sort-by=.lastTimestamp >"$log/events" 2>&1 || true
  "$kubectl" get pods -A -o wide >"$log/pods" 2>&1 || true
  "$kubectl" get pods -A --no-headers -o custom-columns=:metadata.namespace,:metadata.name 2>/dev/null | while read -r namespace pod; do
    "$kubectl" -n "$namespace" logs --all-containers --prefix=false "$pod" >"$log/$namespace.$pod.log" 2>&1 || true
    "$kubectl" -n "$namespace" logs --all-containers --previous "$pod" >"$log/$namespace.$pod.previous.log" 2>/dev/null || rm -f "$log/$namespace.$pod.previous.log"
  done
}

write_results() { # NAME RESULT SECONDS LINES
  local commit; commit=$(git -C "$repo" describe --always --dirty --match= 2>/dev/null || echo unknown)
  describe "$1"
  mkdir -p "$here/results"
  printf 'module %s\nversion %s\nresult %s\nseconds %s\ncommit %s\ndoes %s\n%s\n' "$module" "$version" "$2" "$3" "$commit" "$does" "$4" >"$here/results/$1.txt"
}

document() { python3 "$here/report.py" "$here/results" >"$repo/docs/operators.md"; }

main "$@"; exit
