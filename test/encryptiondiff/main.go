package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"skiff/internal/apiserver/encryption"
	"skiff/internal/apiserver/encryption/kmstest"
)

var (
	record      = flag.Bool("record", false, "write upstream's values and errors to the test data")
	data        = flag.String("testdata", "../../internal/apiserver/encryption/testdata", "directory of the test data")
	differences int
)

func main() {
	testing.Init()
	flag.Parse()
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	compareRefusals()
	compareValues()
	fmt.Printf("%d differences\n", differences)
	if differences > 0 {
		os.Exit(1)
	}
}

func differ(format string, args ...any) {
	differences++
	fmt.Printf(format+"\n", args...)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// configured writes a configuration to a file, and returns its path.
func configured(text string) string {
	dir, err := os.MkdirTemp("", "encryptiondiff")
	check(err)
	path := filepath.Join(dir, "config.yaml")
	check(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func ours(path string) (*encryption.Encryption, error) {
	return encryption.New(encryption.Options{File: path, Log: slog.New(slog.DiscardHandler)})
}

func theirs(path string) (*upstream.EncryptionConfiguration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := upstream.LoadEncryptionConfig(ctx, path, false, "apiserver")
	if err != nil {
		cancel()
	}
	return c, err
}

// compareRefusals compares the errors of configurations that both refuse.
func compareRefusals() {
	file := filepath.Join(*data, "refused.txt")
	text, err := os.ReadFile(file)
	check(err)
	var out strings.Builder
	count := 0
	for section := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, recorded, ok := strings.Cut(section, "\n----\n")
		if !ok {
			panic(section)
		}
		name, config, _ := strings.Cut(head, "\n")
		count++
		path := configured(config + "\n")
		message := func(err error) string {
			if err == nil {
				return "accepted"
			}
			text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "--encryption-provider-config: "), path, "FILE")
			return strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\\n"), "  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.", "")
		}
		_, theirErr := theirs(path)
		_, ourErr := ours(path)
		want, got := message(theirErr), message(ourErr)
		if want != got {
			differ("%s: upstream says\n  %s\nskiff says\n  %s", name, want, got)
		}
		if !*record && want != recorded {
			differ("%s: recorded is\n  %s\nupstream says\n  %s", name, recorded, want)
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n\n", head, want)
		os.RemoveAll(filepath.Dir(path))
	}
	fmt.Printf("compared the errors of %d configurations\n", count)
	if *record {
		check(os.WriteFile(file, []byte(out.String()), 0o644))
	}
}

// Value is a value as upstream has stored it.
type Value struct {
	Providers string `json:"providers"` // ENDPOINT is that of a plugin
	Key       string `json:"key"`
	Value     []byte `json:"value"`
	Stored    []byte `json:"stored"`
}

const (
	key16 = "MDEyMzQ1Njc4OWFiY2RlZg=="
	key24 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// compareValues has each read what the other has encrypted.
func compareValues() {
	var recorded []Value
	t := &testing.T{}
	plugin := kmstest.Start(t)
	defer os.RemoveAll(filepath.Dir(strings.TrimPrefix(plugin.Endpoint, "unix://")))
	defer plugin.Stop()
	for _, annotations := range []map[string][]byte{nil, {"a.example.com": []byte("1"), "b.example.com": nil}} {
		plugin.SetAnnotations(annotations)
		for _, providers := range []string{
			"[{aescbc: {keys: [{name: key1, secret: " + key16 + "}]}}]",
			"[{aescbc: {keys: [{name: key1, secret: " + key32 + "}]}}]",
			"[{aesgcm: {keys: [{name: key1, secret: " + key24 + "}]}}]",
			"[{aesgcm: {keys: [{name: key1, secret: " + key32 + "}]}}]",
			"[{secretbox: {keys: [{name: key1, secret: " + key32 + "}]}}]",
			"[{kms: {apiVersion: v2, name: plugin, endpoint: 'ENDPOINT'}}]",
			"[{identity: {}}]",
		} {
			config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: " + providers + "}]\n"
			path := configured(strings.ReplaceAll(config, "ENDPOINT", plugin.Endpoint))
			us, err := ours(path)
			check(err)
			them, err := theirs(path)
			check(err)
			secrets := schema.GroupResource{Resource: "secrets"}
			ourSecrets, theirSecrets := us.ForResource(secrets), upstream.StaticTransformers(them.Transformers).TransformerForResource(secrets)
			for _, plain := range [][]byte{[]byte("k8s\x00a value"), {}, bytes.Repeat([]byte("0123456789abcdef"), 1000)} {
				const key = "/registry/secrets/default/a"
				ctx := context.Background()
				stored, err := theirSecrets.TransformToStorage(ctx, plain, value.DefaultContext(key))
				check(err)
				if got, stale, err := ourSecrets.FromStorage(ctx, key, stored); err != nil || stale || !bytes.Equal(got, plain) {
					differ("%s: skiff reads %d bytes of upstream's as %d, stale %v, %v", providers, len(plain), len(got), stale, err)
				}
				if len(plain) > 0 && len(plain) < 100 {
					recorded = append(recorded, Value{providers, key, plain, stored})
				}
				stored, err = ourSecrets.ToStorage(ctx, key, plain)
				check(err)
				if got, stale, err := theirSecrets.TransformFromStorage(ctx, stored, value.DefaultContext(key)); err != nil || stale || !bytes.Equal(got, plain) {
					differ("%s: upstream reads %d bytes of skiff's as %d, stale %v, %v", providers, len(plain), len(got), stale, err)
				}
			}
			us.Close()
			os.RemoveAll(filepath.Dir(path))
		}
	}
	fmt.Printf("each read what the other has encrypted with %d configurations\n", len(recorded))
	if *record {
		text, err := json.MarshalIndent(recorded, "", "  ")
		check(err)
		check(os.WriteFile(filepath.Join(*data, "upstream.json"), append(text, '\n'), 0o644))
	}
}
