#!/usr/bin/env bash
# Measures the name server and CoreDNS side by side: queries per second and core about names of the cluster, and memory.
#   test/bench/dns.sh [ROUNDS] [SERVICES]     COREDNS=PROGRAM uses that one; otherwise CoreDNS is built from its module into build/coredns on first use
# Both are processes of their own that follow the same API server over HTTPS; both are configured as kubeadm does it. The load comes from this machine, so
# queries are divided by the processor time that the server took. Each round asks CoreDNS, then skiff; the table shows the median of the rounds.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} services=${2:-1000} version=${COREDNS_VERSION:-v1.15.0}
coredns=${COREDNS:-$PWD/build/coredns/coredns}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x "$coredns" ]; then
  mkdir -p "$work/build" "$(dirname "$coredns")"
  ( cd "$work/build"
    plugins="errors cache loadbalance kubernetes forward metrics"
    { echo 'package main'; echo 'import ('; for p in $plugins; do echo "_ \"github.com/coredns/coredns/plugin/$p\""; done
      echo '"github.com/coredns/coredns/core/dnsserver"'; echo '"github.com/coredns/coredns/coremain"'; echo ')'
      echo 'func init() { dnsserver.Directives = []string{"bind", "prometheus", "errors", "cache", "loadbalance", "kubernetes", "forward"} }'
      echo 'func main() { coremain.Run() }'; } > main.go
    sed -i 's|^import (|import (\n_ "github.com/coredns/coredns/plugin/bind"|' main.go
    printf 'module corednsbuild\n\ngo 1.26.0\n' > go.mod
    go get "github.com/coredns/coredns@$version" >/dev/null 2>&1
    go build -o "$coredns" . )
fi
go test -c -o "$work/bench.test" ./test/bench
for round in $(seq "$rounds"); do
  (cd test/bench && "$work/bench.test" -test.run '^$' -test.bench '^BenchmarkDNS$' -test.benchtime 1x -coredns "$coredns" -dns-services "$services") >> "$work/out"
done
python3 - "$work/out" "$rounds" "$services" <<'PY'
import re, statistics, sys
rows = {}
for line in open(sys.argv[1]):
    if m := re.match(r'BenchmarkDNS/(\w+?)(?:-\d+)?\s+1\s+(.*)', line):
        for value, unit in re.findall(r'([\d.e+]+) (\S+)', m[2]):
            rows.setdefault(unit, {}).setdefault(m[1], []).append(float(value))
print(f'{sys.argv[3]} Services, {int(sys.argv[3]) * 10} endpoints, {sys.argv[2]} rounds')
print('| | CoreDNS | skiff | |\n|---|---|---|---|')
for unit, name, more in [('queries/s/core', 'queries per second and core', True), ('us-cpu/query', 'processor time per query (µs)', False),
                         ('queries/s', 'queries per second', True), ('MB', 'memory (MB resident)', False), ('MB-anonymous', 'of it anonymous (MB)', False)]:
    c, s = (statistics.median(rows[unit][w]) for w in ('coredns', 'skiff'))
    print(f'| {name} | {c:,.1f} | {s:,.1f} | {(s / c if more else c / s):.1f} times better |')
PY
