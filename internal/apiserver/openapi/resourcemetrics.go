package openapi

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
)

// added has the documents of metrics.k8s.io, which a server serves unless another one does, and of InitializerConfigurations, which Kubernetes had once.
//
//go:embed added/*.json.gz
var added embed.FS

// ResourceMetricsV3 returns the OpenAPI v3 document of metrics.k8s.io/v1beta1, for Handler.Put.
func ResourceMetricsV3() ([]byte, error) { return unpack("added/metrics.v3.json.gz") }

// ResourceMetricsV2 returns what metrics.k8s.io/v1beta1 adds to the OpenAPI v2 document.
func ResourceMetricsV2() ([]byte, error) { return unpack("added/metrics.v2.json.gz") }

// InitializersV3 returns the OpenAPI v3 document of admissionregistration.k8s.io/v1alpha1, for Handler.Put.
func InitializersV3() ([]byte, error) { return unpack("added/initializers.v3.json.gz") }

// InitializersV2 returns what admissionregistration.k8s.io/v1alpha1 adds to the OpenAPI v2 document.
func InitializersV2() ([]byte, error) { return unpack("added/initializers.v2.json.gz") }

func unpack(file string) ([]byte, error) {
	compressed, err := added.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
