# skiff: what a person types. `make` builds; `make test` runs every test that fits in CI.
SHELL := /bin/bash
GO ?= go
VERSION := v1.37.1
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE := $(shell git log -1 --format=%cd --date=format:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
LDFLAGS := -s -w -X skiff/internal/apiserver.GitCommit=$(COMMIT) -X skiff/internal/apiserver.BuildDate=$(DATE)
STAMP := $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(VERSION) -X $(p).gitMajor=1 -X $(p).gitMinor=37 -X $(p).gitCommit=$(COMMIT) -X $(p).gitTreeState=clean -X $(p).buildDate=$(DATE))
UP := --no-node
NODE ?= yes
DATA_DIR ?= /var/lib/skiff

.PHONY: all skiff kubectl up down test lint generate bench differential record demo images e2e conformance chaos packages clean

all: skiff kubectl

skiff:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/skiff ./cmd/skiff

kubectl:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(STAMP)' -o bin/kubectl ./cmd/kubectl

# make up NODE=no starts a control plane; nodes come in a later version.
up: all
ifneq ($(NODE),no)
	@echo 'this version runs no node yet: make up NODE=no' >&2; exit 1
endif
	bin/skiff up --no-node --data-dir $(DATA_DIR)

down: skiff
	bin/skiff down --purge --data-dir $(DATA_DIR)

# Tests that start programs find them in bin.
test: all packages
	$(GO) test -timeout 20m ./...

# Debian packages that tests use, where they are missing.
packages:
	@command -v strace >/dev/null || { apt-get update -qq && apt-get install -y -qq strace; } >/dev/null

lint:
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$unformatted" ] || { echo "not gofmt-ed: $$unformatted" >&2; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./skifftest/... ./cmd/...
	$(GO) tool staticcheck ./...

generate:
	$(GO) generate ./...

# Side by side with upstream, which is built from its modules on first use (about 20 minutes).
bench: all
	test/bench/run.sh

# Compares with an upstream server started for the purpose; `make record` writes its answers down again.
differential: all
	test/differential/upstream.sh compare

record: all
	test/differential/upstream.sh record

chaos: all packages
	$(GO) test -count=1 -timeout 30m ./test/chaos/... -rounds 30

demo images e2e conformance:
	@echo 'make $@: its part of skiff is not there yet (see docs/status.md)' >&2; exit 1

clean:
	rm -rf bin build
