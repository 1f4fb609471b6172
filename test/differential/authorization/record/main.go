package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/test/differential/authorization"
)

const (
	questions = "test/differential/authorization/testdata/"
	defaults  = "internal/apiserver/authz/rbac/bootstrap/testdata/upstream.jsonl"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the upstream server")
	flag.Parse()
	if err := record(context.Background(), *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := authorization.NewClient(config)
	if err != nil {
		return err
	}
	if err := recordDefaults(ctx, client); err != nil {
		return err
	}
	objects, err := authorization.Objects(questions + "objects.yaml")
	if err != nil {
		return err
	}
	if err := client.Create(ctx, objects); err != nil {
		return err
	}
	files, err := filepath.Glob(questions + "*.questions")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := recordAnswers(ctx, client, file); err != nil {
			return err
		}
	}
	return nil
}

// recordDefaults writes each object on a line, without fields that differ from cluster to cluster.
func recordDefaults(ctx context.Context, client *authorization.Client) error {
	list, err := client.Defaults(ctx)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, obj := range list {
		obj.SetManagedFields(nil)
		obj.SetResourceVersion("")
		obj.SetUID("")
		obj.SetCreationTimestamp(metav1.Time{})
		line, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		out.Write(append(bytes.TrimSpace(line), '\n'))
	}
	fmt.Printf("%s: %d objects\n", defaults, len(list))
	return os.WriteFile(defaults, out.Bytes(), 0o644)
}

func recordAnswers(ctx context.Context, client *authorization.Client, file string) error {
	list, err := authorization.Load(file)
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Answers, err = client.AskOften(ctx, q); err != nil {
			return fmt.Errorf("%s:%d: %w", file, q.Line, err)
		}
	}
	fmt.Printf("%s: %d questions\n", file, len(list))
	return os.WriteFile(file, []byte(authorization.Format(list)), 0o644)
}
