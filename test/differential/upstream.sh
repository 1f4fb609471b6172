#!/bin/bash
# Runs something against a fresh upstream Kubernetes API server, and records skiff's expectations from it.
#
#   test/differential/upstream.sh [record]     record every differential script, every catalog story and who may do what again
#   test/differential/upstream.sh cluster [SCRIPT...]  record only the scripts that need control loops and nodes
#   test/differential/upstream.sh plugins [SCRIPT...]  record only the scripts that need plugins which are off by default
#   test/differential/upstream.sh authorization  record only who may do what
#   test/differential/upstream.sh check        replay the recordings on upstream itself: they must repeat
#   test/differential/upstream.sh compare      check, then replay them on skiff
#   test/differential/upstream.sh mutate [FLAG... STORY...]  change the objects of stories in every way and print where skiff answers otherwise (bin/skiff)
#   test/differential/upstream.sh swap         have upstream write objects, skiff read and change them in the same etcd, and upstream read them (bin/skiff)
#   test/differential/upstream.sh swap-encrypted  the same with everything encrypted in etcd, by each provider with a key
#   test/differential/upstream.sh run CMD...   run CMD with KUBECONFIG set and upstream's kubectl first on PATH (try: bash)
#   test/differential/upstream.sh run-both CMD...   the same with bin/skiff beside it, and its kubeconfig in SKIFF
#   test/differential/upstream.sh run-cluster CMD...   the same with control loops, scheduler and nodes
#
# The server has no controllers, no nodes and none of the admission plugins that change what is recorded of single objects; for
# testdata/cluster it has all of Kubernetes' default plugins, kube-controller-manager, kube-scheduler and three hollow nodes. Each use
# gets its own empty etcd, on free loopback ports. Programs are built once into $UPSTREAM (beside the repository; minutes the first time).
set -eu
repo=$(cd "$(dirname "$0")/../.." && pwd)
bin=${UPSTREAM:-$repo/../up}
mkdir -p "$bin"; bin=$(cd "$bin" && pwd)
without=ServiceAccount,Priority,DefaultTolerationSeconds,StorageObjectInUseProtection,TaintNodesByCondition,LimitRanger,ResourceQuota

main() {
  local programs="etcd kube-apiserver kubectl"
  case ${1:-record} in run | run-both | mutate | swap | swap-encrypted) ;; *) programs="$programs kube-controller-manager kube-scheduler";; esac
  "$repo/../shared/upstream/build.sh" "$bin" $programs >&2
  cd "$repo"
  case ${1:-record} in
    record)
      with_upstream go run ./test/differential/record --kubectl "$bin/kubectl"
      record_plugins
      record_cluster
      stories=$(compgen -G 'internal/catalog/*/testdata/stories/*.yaml' || true)
      [ -z "$stories" ] || with_upstream bash -c 'go run ./test/record --kubeconfig "$KUBECONFIG" "$@"' record $stories
      record_authorization;;
    cluster) shift; record_cluster "$@";;
    plugins) shift; record_plugins "$@";;
    authorization) record_authorization;;
    check) check;;
    compare) check; with_upstream swap; swap_encrypted; go test -count=1 -timeout 30m ./test/differential/...;;
    mutate)
      shift; [ $# -gt 0 ] || set -- internal/catalog/*/testdata/stories/*.yaml
      extra=--allow-privileged with_upstream with_skiff bash -c 'go run ./test/differential/mutate --upstream "$KUBECONFIG" --skiff "$SKIFF" "$@"' mutate "$@";;
    swap) with_upstream swap;;
    swap-encrypted) swap_encrypted;;
    run-both) shift; with_upstream with_skiff "$@";;
    run) shift; with_upstream "$@";;
    run-cluster) shift; with_cluster "$@";;
    *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2;;
  esac
}

check() {
  with_upstream bash -c 'SKIFF_DIFFERENTIAL_KUBECONFIG=$KUBECONFIG SKIFF_DIFFERENTIAL_KUBECTL=$0 go test -count=1 -timeout 30m -run TestReplay ./test/differential' "$bin/kubectl"
  with_plugins bash -c 'SKIFF_DIFFERENTIAL_KUBECONFIG=$KUBECONFIG SKIFF_DIFFERENTIAL_KUBECTL=$0 go test -count=1 -timeout 30m -run TestPlugins ./test/differential' "$bin/kubectl"
  for script in test/differential/testdata/cluster/*.script; do
    with_cluster bash -c 'SKIFF_DIFFERENTIAL_KUBECONFIG=$KUBECONFIG SKIFF_DIFFERENTIAL_KUBECTL=$0 go test -count=1 -run "^TestCluster$/^$1$" ./test/differential' \
      "$bin/kubectl" "$(basename "$script" .script)"
  done
  with_upstream with_aggregation bash -c 'SKIFF_DIFFERENTIAL_KUBECONFIG=$KUBECONFIG go test -count=1 -run TestServer ./test/differential/authorization'
}

record_cluster() { # SCRIPT...: each on a server of its own, for there are nodes to be drained
  [ $# -gt 0 ] || set -- test/differential/testdata/cluster/*.script
  for script; do with_cluster go run ./test/differential/record --kubectl "$bin/kubectl" "$script"; done
}

record_plugins() { # SCRIPT...
  [ $# -gt 0 ] || set -- test/differential/testdata/plugins/*.script
  with_plugins go run ./test/differential/record --kubectl "$bin/kubectl" "$@"
}

with_plugins() ( # CMD...: on a server with the plugins that the scripts need, which asks a webhook about images
  files=$(mktemp -d) images=
  trap '[ -z "$images" ] || kill $images; rm -rf "$files"' EXIT
  go build -o "$files/images" ./test/differential/images
  "$files/images" "$files" & images=$!
  for _ in $(seq 100); do [ -s "$files/admission.yaml" ] && break; sleep .1; done
  plugins="--disable-admission-plugins $without --enable-admission-plugins $("$files/images") --admission-control-config-file $files/admission.yaml" with_upstream "$@"
)

record_authorization() { with_upstream with_aggregation go run ./test/differential/authorization/record; }

with_aggregation() { # CMD...: roles are aggregated from others as long as CMD lives
  start controllers "$bin/kube-controller-manager" --kubeconfig "$KUBECONFIG" --controllers clusterrole-aggregation-controller --leader-elect=false --secure-port 0
  "$@"
}

with_cluster() { plugins=--enable-admission-plugins=NodeRestriction with_upstream with_nodes "$@"; }

with_nodes() { # CMD...: control loops, a scheduler and nodes live as long as CMD
  go build -o "$dir/hollow" ./test/differential/hollow
  start controllers "$bin/kube-controller-manager" --kubeconfig "$KUBECONFIG" --leader-elect=false --secure-port 0 \
    --service-account-private-key-file "$dir/sa.key" --root-ca-file "$dir/certs/apiserver.crt" \
    --allocate-node-cidrs --cluster-cidr 10.42.0.0/16 --service-cluster-ip-range 10.43.0.0/16
  start scheduler "$bin/kube-scheduler" --kubeconfig "$KUBECONFIG" --leader-elect=false --secure-port 0
  start hollow "$dir/hollow" --kubeconfig "$KUBECONFIG" --count 3
  "$@"
}

with_skiff() { # CMD...: skiff's API server lives beside upstream's as long as CMD, with the same plugins
  local port=$(free_port)
  start skiff "$repo/bin/skiff" apiserver --data-dir "$dir/skiff" --secure-port $port --bind-address 127.0.0.1 --token-auth-file "$dir/tokens.csv" \
    --service-cluster-ip-range 10.43.0.0/16 --disable-admission-plugins $without
  export SKIFF=$dir/skiff.kubeconfig
  sed "s|server: [^,]*,|server: \"https://127.0.0.1:$port\",|" "$KUBECONFIG" >"$SKIFF"
  for _ in $(seq 100); do kubectl --kubeconfig "$SKIFF" get --raw /readyz >/dev/null 2>&1 && break; sleep .1; done
  "$@"
}

free_port() { # a loopback port nobody answers on
  while :; do
    local port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port; return; }
  done
}

start() { # NAME CMD...: in the background, until with_upstream ends
  local name=$1; shift
  "$@" >"$dir/$name.log" 2>&1 & started="$! $started"
}

start_apiserver() { # on the etcd at $client
  start apiserver "$bin/kube-apiserver" --etcd-servers $client --secure-port $secure --bind-address 127.0.0.1 --cert-dir "$dir/certs" \
    --service-account-key-file "$dir/sa.key" --service-account-signing-key-file "$dir/sa.key" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --token-auth-file "$dir/tokens.csv" \
    --authorization-mode Node,RBAC --service-cluster-ip-range 10.43.0.0/16 ${extra:-} \
    ${plugins:---disable-admission-plugins $without}
}

with_upstream() ( # CMD...: etcd and kube-apiserver live as long as CMD
  dir=$(mktemp -d) started=
  stop() { for pid in $started; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done; rm -rf "$dir"; }
  trap stop EXIT
  trap 'exit 130' INT TERM
  client=http://127.0.0.1:$(free_port) peer=http://127.0.0.1:$(free_port) secure=$(free_port)

  start etcd "$bin/etcd" --data-dir "$dir/etcd" --listen-client-urls $client --advertise-client-urls $client \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster default=$peer --log-level error
  openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
  echo 'admin,admin,admin,"system:masters"' >"$dir/tokens.csv"
  start_apiserver
  apiserver=${started%% *}

  export KUBECONFIG=$dir/kubeconfig PATH=$bin:$PATH
  cat >"$KUBECONFIG" <<K
apiVersion: v1
kind: Config
clusters: [{name: upstream, cluster: {server: "https://127.0.0.1:$secure", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admin}}]
contexts: [{name: upstream, context: {cluster: upstream, user: admin}}]
current-context: upstream
K
  ready
  "$@"
)

ready() { # waits until the API server of $KUBECONFIG is
  for _ in $(seq 200); do
    kubectl get --raw /readyz >/dev/null 2>&1 && return
    kill -0 ${started%% *} 2>/dev/null || { tail "$dir"/*.log >&2; exit 1; }
    sleep .3
  done
  echo 'upstream.sh: the server is not ready' >&2; exit 1
}

# What upstream has written must be the same under skiff, and what skiff has written under upstream.
swap() {
  local kinds=customresourcedefinitions,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings
  kubectl apply -f "$repo/test/differential/testdata/swap/definition.yaml"
  kubectl wait --for condition=Established crd/gauges.swap.example.com --timeout 1m
  for _ in $(seq 100); do kubectl apply -f "$repo/test/differential/testdata/swap/objects.yaml" && break; sleep .3; done
  all upstream-wrote

  stop_server
  start skiff "$repo/bin/skiff" apiserver --data-dir "$dir/skiff" --etcd-servers $client --secure-port $secure --bind-address 127.0.0.1 --token-auth-file "$dir/tokens.csv" \
    --service-cluster-ip-range 10.43.0.0/16 --disable-admission-plugins $without ${encryption:+--encryption-provider-config $encryption}
  ready
  all skiff-reads
  diff "$dir/upstream-wrote" "$dir/skiff-reads"
  echo "skiff reads what upstream wrote: $(wc -l <"$dir/skiff-reads") lines"
  kubectl patch gauge one --type merge -p '{"spec":{"level":7}}'
  kubectl apply -f "$repo/test/differential/testdata/swap/later.yaml"
  kubectl delete gauge two
  kubectl patch crd gauges.swap.example.com --type json -p '[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]'
  for _ in $(seq 100); do [ "$(kubectl get crd gauges.swap.example.com -o jsonpath='{.status.storedVersions}')" = '["v1","v2"]' ] && break; sleep .1; done
  kubectl patch gauge three --type merge -p '{"spec":{"level":9}}'
  all skiff-wrote

  stop_server
  start_apiserver
  ready
  all upstream-reads
  diff "$dir/skiff-wrote" "$dir/upstream-reads"
  echo "upstream reads what skiff wrote: $(wc -l <"$dir/upstream-reads") lines"
  [ "$(kubectl get gauge.v2.swap.example.com three -o jsonpath='{.spec.level}')" = 9 ]
}

swap_encrypted() (
  encryption=$(mktemp)
  trap 'rm -f "$encryption"' EXIT
  for provider in aescbc aesgcm secretbox; do
    cat >"$encryption" <<K
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: ['*.*'], providers: [{$provider: {keys: [{name: key1, secret: $(head -c 32 /dev/urandom | base64)}]}}]}]
K
    extra="--encryption-provider-config $encryption" with_upstream swap_planted
    echo "the same with everything encrypted by $provider"
  done
)

swap_planted() { # swap, and etcd's files hold no value of an object
  swap
  kubectl create configmap planted --from-literal key=a-value-that-was-planted
  ! grep -rq a-value-that-was-planted "$dir/etcd"
}

stop_server() { # the one that was started last
  kill ${started%% *} && wait ${started%% *} || true
  started=${started#* }
}

all() { # NAME: writes all objects of $kinds and all gauges, in both versions, to a file
  { kubectl get $kinds -o json --show-managed-fields; kubectl get configmaps -n default -o json --show-managed-fields; kubectl get gauges.v1.swap.example.com -A -o json --show-managed-fields; kubectl get gauges.v2.swap.example.com -A -o json --show-managed-fields; } >"$dir/$1"
}

main "$@"
