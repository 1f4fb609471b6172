samples=$source/docs/src/samples

get() { kubectl get clusters.postgresql.cnpg.io cluster-example -o jsonpath="{$1}"; }

mkdir -p "$data/rootfs/operator"
ln "$bin/manager" "$data/rootfs/operator/manager_$(dpkg --print-architecture)" 2>/dev/null || cp "$bin/manager" "$data/rootfs/operator/manager_$(dpkg --print-architecture)"
image cloudnative-pg manager "$data/rootfs"
install
kubectl wait --for=condition=Established crd --all --timeout 30s >/dev/null
deployed cnpg-system cnpg-controller-manager 240
wait_for 60 contains LS0tLS1CRUdJTi kubectl get mutatingwebhookconfiguration cnpg-mutating-webhook-configuration -o 'jsonpath={.webhooks[1].clientConfig.caBundle}'
wait_for 60 contains LS0tLS1CRUdJTi kubectl get validatingwebhookconfiguration cnpg-validating-webhook-configuration -o 'jsonpath={.webhooks[1].clientConfig.caBundle}'
say "$(kubectl get crd -o name | wc -l) definitions of up to 240 kB are served; its manager runs, made its own certificate and put the authority into the webhook configurations"

# Defaults, and what is wrong.
SKIFF=$(command -v skiff) "$here/../../images/build.sh" "$log/../../images" postgres
skiff image load --data-dir "$data" "$log/../../images/postgres.tar" >/dev/null
accepted() { kubectl apply --dry-run=server -f "$samples/cluster-example.yaml"; }
wait_for 30 accepted
kubectl apply -f - <<<"$(cat "$samples/cluster-example.yaml"; echo '  imageName: skiff.internal/postgres:15')" >/dev/null
equal 'app app' "$(get .spec.bootstrap.initdb.database) $(get .spec.bootstrap.initdb.owner)" "database and owner by default"
equal 'on logical' "$(get .spec.postgresql.parameters.archive_mode) $(get .spec.postgresql.parameters.wal_level)" "parameters of PostgreSQL by default"
say "a Cluster of its samples with four lines of spec is defaulted by webhook: database \`app\`, $(get .spec.postgresql.parameters | jq length) parameters of PostgreSQL, image \`$(get .spec.imageName)\`"
cluster() { printf 'apiVersion: postgresql.cnpg.io/v1\nkind: Cluster\nmetadata: {name: bad}\nspec: {storage: {size: 1Gi}, %s}\n' "$1" | kubectl apply -f -; }
why="The Cluster \"bad\" is invalid: spec.postgresql.parameters.cluster_name: Invalid value: \"mine\": Can't set fixed configuration parameter"
refused "$why" cluster 'instances: 1, postgresql: {parameters: {cluster_name: mine}}'
say "a Cluster is refused by webhook: $why"
refused 'maxSyncReplicas must be lower than the number of instances' cluster 'instances: 2, minSyncReplicas: 1, maxSyncReplicas: 2'
refused 'spec.instances in body should be greater than or equal to 1' cluster 'instances: 0'
refused "can't shrink existing storage from 1Gi to 512Mi" kubectl patch clusters.postgresql.cnpg.io cluster-example --type merge -p '{"spec":{"storage":{"size":"512Mi"}}}'
database() { printf 'apiVersion: postgresql.cnpg.io/v1\nkind: Database\nmetadata: {name: %s}\nspec: {name: %s, owner: app, cluster: {name: cluster-example}}\n' "$@" | kubectl apply -f -; }
refused 'name postgres is reserved' database bad postgres
database good one >/dev/null
refused 'name is immutable' database good two
say "so are a replica too many, a smaller volume by update (\`can't shrink existing storage from 1Gi to 512Mi\`); a Database's name is guarded by rules in CEL of its definition"

# What it makes of a Cluster.
for made in secret/cluster-example-{ca,server,replication,app} service/cluster-example-{rw,ro,r} serviceaccount/cluster-example role/cluster-example rolebinding/cluster-example poddisruptionbudget/cluster-example-primary \
  persistentvolumeclaim/cluster-example-1 job/cluster-example-1-initdb; do
  wait_for 60 kubectl get "$made"
  equal Cluster/cluster-example "$(kubectl get "$made" -o jsonpath='{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}')" "owner of $made"
done
kubectl get secret cluster-example-ca -o jsonpath='{.data.ca\.crt}' | base64 -d >"$log/ca.crt"
kubectl get secret cluster-example-server -o jsonpath='{.data.tls\.crt}' | base64 -d >"$log/server.crt"
openssl verify -CAfile "$log/ca.crt" "$log/server.crt" >/dev/null || fail "the certificate of the server is not by the Cluster's authority"
say "of the Cluster it made an authority, two certificates and a password in Secrets, three Services, a ServiceAccount with role and binding, a PodDisruptionBudget, a claim and the Job that makes the database, all owned by the Cluster"
kubectl scale clusters.postgresql.cnpg.io cluster-example --replicas 2 >/dev/null
equal 2 "$(get .spec.instances)" "instances after kubectl scale"
kubectl scale clusters.postgresql.cnpg.io cluster-example --replicas 3 >/dev/null

# It runs.
wait_for 300 contains "Cluster in healthy state" get .status.phase
contains "Cluster in healthy state" kubectl get clusters.postgresql.cnpg.io || fail "the table has no status: $(kubectl get clusters.postgresql.cnpg.io 2>&1)"
equal "3 3" "$(get .status.instances) $(get .status.readyInstances)" "instances, and those that are ready"
equal "Bound Bound Bound" "$(kubectl get persistentvolumeclaims -l cnpg.io/cluster=cluster-example -o jsonpath='{.items[*].status.phase}')" "phases of the claims"
equal "local local local" "$(kubectl get persistentvolumeclaims -l cnpg.io/cluster=cluster-example -o jsonpath='{.items[*].spec.storageClassName}')" "classes of the claims"
query() { kubectl exec "$1" -c postgres -- psql -qtA -d app -c "$2"; }
first=$(get .status.currentPrimary)
query "$first" 'CREATE TABLE kept (n int); INSERT INTO kept SELECT generate_series(1, 1000)'
everywhere() { local pod; for pod in cluster-example-{1,2,3}; do [ "$(query "$pod" 'SELECT count(*) FROM kept')" = "$1" ] || return 1; done; }
wait_for 60 everywhere 1000
say "three instances run, each with a claim of 1Gi of the default StorageClass: $(get .status.phase); 1000 rows written to the primary are read from all three"

# The primary is lost.
kubectl delete pod "$first" --grace-period 0 --force >/dev/null 2>&1
promoted() { local now; now=$(get .status.currentPrimary) && [ -n "$now" ] && [ "$now" != "$first" ]; }
wait_for 120 promoted
wait_for 240 contains "Cluster in healthy state" get .status.phase
second=$(get .status.currentPrimary)
query "$second" 'INSERT INTO kept VALUES (1001)'
wait_for 60 everywhere 1001
say "its primary deleted by force, $second is promoted in place of $first, which comes back with its claim as a replica; no row is lost, and all three follow"

# A claim grows.
kubectl patch clusters.postgresql.cnpg.io cluster-example --type merge -p '{"spec":{"storage":{"size":"2Gi"}}}' >/dev/null
asked() { [ "$(kubectl get persistentvolumeclaims -l cnpg.io/cluster=cluster-example -o jsonpath='{.items[*].spec.resources.requests.storage}')" = "2Gi 2Gi 2Gi" ]; }
wait_for 60 asked
say "a larger volume in the Cluster becomes a larger claim of each instance"

volumes() { kubectl get persistentvolumes -o name | grep -c .; }
kubectl delete clusters.postgresql.cnpg.io cluster-example >/dev/null
left() { kubectl get secrets,services,jobs,pods,persistentvolumeclaims,poddisruptionbudgets,roles,serviceaccounts -o name | grep cluster-example; }
none() { ! left; }
wait_for 120 none
wait_for 60 equal 0 "$(volumes)" "volumes that are left"
say "with the Cluster all of that was deleted, its volumes too"
