//go:build deps

package main

import (
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/google/btree"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/metadata"
	_ "k8s.io/kube-openapi/pkg/builder3"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "sigs.k8s.io/structured-merge-diff/v6/typed"
	_ "golang.org/x/net/http2"
	_ "github.com/distribution/reference"
	_ "github.com/robfig/cron/v3"
	_ "k8s.io/component-helpers/storage/volume"
	_ "gopkg.in/evanphx/json-patch.v4"
)

func main() {}
