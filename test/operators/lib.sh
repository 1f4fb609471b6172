# What work.sh of a program can call. It runs with bash -Eeuo pipefail, in test/operators, with
#   KUBECONFIG        an administrator's, of a fresh cluster with one node; kubectl and skiff are first in PATH
#   $here             the folder of the program
#   $source, $bin     the module's files, and the programs that were built of them
#   $version, $log    the module's version, and a folder for logs that are worth keeping
# The cluster has the image busybox:latest. An image NAME made by `image` is called skiff.internal/NAME:$version.

trap 'echo "failed: ${BASH_COMMAND//$'"'\n'"'/ } (line $LINENO)" | cut -c1-300 >>"$said"' ERR

# say TEXT: records what was seen; the lines are in docs/operators.md.
say() { echo "- $*" >>"$said"; echo "  $*" >&2; }

# fail TEXT: ends the work.
fail() { echo "failed: $*" | tr '\n' ' ' | cut -c1-600 >>"$said"; echo >>"$said"; echo "failed: $*" >&2; trap - ERR; exit 1; }

# image NAME PROGRAM [DIR]: makes an image of a program, with the files below DIR at its root, and loads it into the cluster. PROGRAM is one of $bin, or a path.
image() {
  local dir program=$2; dir=$(mktemp -d)
  [[ $program == */* ]] || program=$bin/$program
  mkdir -p "$dir/rootfs"; mkdir -m 1777 "$dir/rootfs/tmp"
  [ -z "${3:-}" ] || cp -r "$3/." "$dir/rootfs/"
  ln "$program" "$dir/rootfs/${program##*/}" 2>/dev/null || cp "$program" "$dir/rootfs/${program##*/}"
  printf 'FROM scratch\nCOPY rootfs /\nUSER 65532:65532\nENTRYPOINT ["/%s"]\n' "${program##*/}" >"$dir/Dockerfile"
  skiff image build --tag "skiff.internal/$1:$version" --output "$dir/image.tar" "$dir" >/dev/null
  skiff image load --data-dir "$data" "$dir/image.tar" >/dev/null
  rm -rf "$dir"
}

# built NAME: the folder with the programs of another program, which this one's `needs` names.
built() { ls -d "${bin%/*}/$1"-*; }

# install [KUBECTL-APPLY-FLAG...]: applies kustomization.yaml of the program's folder, whose resources are files of the module, below source/.
install() { manifests | kubectl apply --server-side --force-conflicts "$@" -f - >"$log/install"; }

# manifests: what kustomization.yaml makes of the module's files.
manifests() {
  local dir; dir=$(mktemp -d)
  sed "s|\$version|$version|g" "$here/kustomization.yaml" >"$dir/kustomization.yaml"
  ln -s "$source" "$dir/source"
  kubectl kustomize --load-restrictor LoadRestrictionsNone "$dir"
  rm -rf "$dir"
}

# wait_for SECONDS CMD...: until CMD succeeds.
wait_for() {
  local until=$((SECONDS + $1)); shift
  until "$@" >"$log/wait_for" 2>&1; do
    [ $SECONDS -lt $until ] || fail "waited in vain for: $*: $(tail -c 400 "$log/wait_for")"
    sleep 0.3
  done
}

# deployed NAMESPACE NAME [SECONDS]: until all pods of a Deployment are available.
deployed() { kubectl -n "$1" rollout status "deployment/$2" --timeout "${3:-120}s" >>"$log/rollout" || fail "deployment $1/$2 is not available: $(kubectl -n "$1" get pods 2>&1 | tail -3)"; }

# refused TEXT CMD...: CMD fails with an error that contains TEXT.
refused() {
  local text=$1 out; shift
  if out=$("$@" 2>&1); then fail "not refused: $*: $out"; fi
  [[ $out == *"$text"* ]] || fail "refused, but not with \"$text\": $*: $out"
}

# equal WANT GOT WHAT
equal() { [ "$1" = "$2" ] || fail "$3: $2, not $1"; }

# contains TEXT CMD...: the output of CMD contains TEXT.
contains() {
  local text=$1 out; shift
  out=$("$@" 2>&1) || return 1
  [[ $out == *"$text"* ]] || { echo "$out"; return 1; }
}
