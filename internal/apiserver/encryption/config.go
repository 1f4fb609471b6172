package encryption

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// maxFile bounds the size of a configuration file.
const maxFile = 1 << 20

// readFile returns the content of a configuration file and its hash, which tells whether the file has changed without keeping its keys in memory.
func readFile(path string) (data []byte, hash string, err error) {
	f, err := os.Open(path)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
		_ = f.Close() // it was only read
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("error reading encryption provider configuration file %q: %w", path, err)
	case len(data) == 0:
		return nil, "", fmt.Errorf("encryption provider configuration file %q is empty", path)
	case len(data) > maxFile:
		return nil, "", fmt.Errorf("encryption provider configuration file %q is larger than %d bytes", path, maxFile)
	}
	return data, fmt.Sprintf("sha256:%x", sha256.Sum256(data)), nil
}

// decode returns the valid configuration that a file contains, with its defaults. reload says that the file is reloaded when it changes, for which the names of KMS
// providers must differ.
func decode(path string, data []byte, reload bool) (*apiserver.EncryptionConfiguration, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	obj, gvk, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", path, err)
	}
	config, ok := obj.(*apiserver.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("got unexpected config type: %v", gvk)
	}
	return config, validate(config, reload).ToAggregate()
}
