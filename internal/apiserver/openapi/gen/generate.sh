#!/bin/sh
# Writes the OpenAPI documents and the merge schema anew, here or below the folder that is given instead of
# internal/apiserver. It takes about a minute the first time.
set -eu
cd "$(dirname "$0")"
out=${1:-../..}

# The module follows the main one, whose packages it uses: let it take over what that one requires.
export GOFLAGS="${GOFLAGS:-} -mod=mod"

# First what openapi-gen knows of the Go types, as Go. Its report lists where k8s.io/api departs from its own conventions.
go tool openapi-gen --output-dir definitions --output-pkg skiff/internal/apiserver/openapi/gen/definitions \
	--output-file zz_generated.openapi.go --report-filename /dev/null $(cat packages.txt)

# Then what we make of it.
go run . -documents "$out/openapi" -mergeschema "$out/managedfields/mergeschema"
