# skiff: what a person types. `make` builds; `make test` runs every test that fits in CI.
SHELL := /bin/bash
GO ?= go
VERSION := v1.37.1
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE := $(shell git log -1 --format=%cd --date=format:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
LDFLAGS := -s -w -X skiff/internal/apiserver.GitCommit=$(COMMIT) -X skiff/internal/apiserver.BuildDate=$(DATE)
STAMP := $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(VERSION) -X $(p).gitMajor=1 -X $(p).gitMinor=37 -X $(p).gitCommit=$(COMMIT) -X $(p).gitTreeState=clean -X $(p).buildDate=$(DATE))
NODE ?= yes
NODES ?=
DATA_DIR ?= /var/lib/skiff

# What tests are run and checked with: the modules, tags and settings that bin/skiff is built with, so that nothing is compiled twice.
TESTED := -modfile build/slim/go.mod -trimpath -tags grpcnotrace

.PHONY: all skiff kubectl slim sbom up down test race fuzz lint vulnerabilities generated generate bench differential record demo bundle images e2e conformance operators chaos packages clean

all: skiff kubectl sbom

# With what a node needs beside skiff; a plain `go build ./cmd/skiff` has none of it, and runs no nodes.
skiff: bundle slim
	CGO_ENABLED=0 $(GO) build -modfile build/slim/go.mod -trimpath -tags bundle,grpcnotrace -ldflags '$(LDFLAGS)' -o bin/skiff ./cmd/skiff

kubectl: slim
	CGO_ENABLED=0 $(GO) build -modfile build/slim/go.mod -trimpath -ldflags '-s -w $(STAMP)' -o bin/kubectl ./cmd/kubectl

# containerd, runc, CNI plugins and pause, built from their modules once, and kubectl: what bin/skiff carries.
bundle: kubectl
	@GO='$(GO)' internal/bundle/build/build.sh

# go.mod with skiff's patches to two modules that it links (internal/bundle/patches).
slim:
	@GO='$(GO)' internal/bundle/slim.sh

# What every shipped program is linked from, as a CycloneDX software bill of materials: bin/sbom.json.
sbom: skiff kubectl
	@{ $(GO) version -m bin/skiff bin/kubectl; cat build/bundle/programs; } | $(GO) run ./internal/bundle/sbom >bin/sbom.json

# nginx, busybox and a test server for the demo and for tests, into build/images.
images: skiff
	@GO='$(GO)' test/images/build.sh build/images

# make up starts a cluster on this machine; NODE=no a control plane alone, NODES=3 three nodes made of namespaces.
up: all
	bin/skiff up $(if $(filter no,$(NODE)),--no-node) $(if $(NODES),--nodes $(NODES)) --data-dir $(DATA_DIR)

# The guide's headline, from nothing: build, images, cluster, three web servers, and how they came to be.
demo: all images
	bin/skiff demo $(if $(NODES),--nodes $(NODES)) --images build/images --data-dir $(DATA_DIR)

down: skiff
	bin/skiff down --purge --data-dir $(DATA_DIR)

# Tests that start programs find them in bin. `make lint` vets: go test would vet everything that is linked once more, for each way to compile it.
test: all packages images
	CGO_ENABLED=0 $(GO) test $(TESTED) -vet=off -timeout 10m ./...

# The race detector over every package with goroutines; PACKAGES=… over some (.ci/run: those of .ci/race).
PACKAGES ?= ./internal/... ./skifftest/...
race: all packages images
	$(GO) test $(TESTED) -vet=off -race -timeout 30m $(PACKAGES)

# Every fuzz target for a while, one after the other: make fuzz FUZZTIME=10m.
FUZZTIME ?= 2m
fuzz: slim
	@GO='$(GO)' test/fuzz.sh $(FUZZTIME) $(TESTED) -vet=off

# Debian packages that tests use, where they are missing.
packages:
	@command -v strace >/dev/null && command -v iptables-nft-restore >/dev/null && command -v nft >/dev/null || { apt-get update -qq && apt-get install -y -qq strace iptables nftables; } >/dev/null

lint: slim
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$unformatted" ] || { echo "not gofmt-ed: $$unformatted" >&2; exit 1; }
	CGO_ENABLED=0 $(GO) vet $(TESTED) ./...
	GOOS=darwin $(GO) vet ./skifftest/... ./cmd/...
	$(GO) tool staticcheck ./...
	@$(MAKE) --no-print-directory vulnerabilities

# Known vulnerabilities in what is linked, where their database can be reached.
vulnerabilities:
	@out=$$($(GO) tool govulncheck ./cmd/... 2>&1) || { echo "$$out" >&2; grep -q '^govulncheck: fetching vulnerabilities' <<<"$$out" && echo 'govulncheck: not checked, as the database cannot be reached' >&2; }

# Whether generated files are what their generator writes today, and what Kubernetes serves.
generated:
	internal/apiserver/openapi/gen/check.sh

generate:
	$(GO) generate ./...

# Side by side with upstream, which is built from its modules on first use (about 20 minutes).
bench: all images
	test/bench/run.sh
	test/bench/run.sh 3 held
	test/bench/run.sh 3 loops
	test/bench/node.sh 3

# Compares with an upstream server started for the purpose; `make record` writes its answers down again.
differential: all
	test/differential/upstream.sh compare
	test/schedulerdiff/run.sh

record: all
	test/differential/upstream.sh record

chaos: all packages
	$(GO) test -count=1 -timeout 90m -v ./test/chaos/... -rounds 30 -fault-rounds 200

# Every clause of what a kubelet must do, with real containers, and what goes wrong; what does not take long is also in `make test`.
e2e: all images
	$(GO) test -count=1 -timeout 45m -v ./test/node -slow -kill-rounds 60 -volume-rounds 30
	$(GO) test -count=1 -timeout 30m -v ./test/local -rounds 30 -fault-rounds 30
	$(GO) test -count=1 -timeout 90m -v ./test/local -run TestVolumeFaults -volume-rounds 100
	test/postgres/run.sh 60
	test/scaling/run.sh

# Upstream's e2e specs against a node of ours; writes docs/conformance.md. Upstream's programs are built on first use (about 25 minutes).
conformance: all
	test/conformance/run.sh

# Programs that others wrote, built from their modules and run in pods of a cluster of ours; writes docs/operators.md. They are built on first use (about half an hour).
operators: all images
	test/operators/run.sh

clean:
	rm -rf bin build internal/bundle/embedded/*.zst internal/bundle/embedded/*.hash internal/bundle/embedded/made
