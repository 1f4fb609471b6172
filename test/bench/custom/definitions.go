package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// unusedDefinition is a definition of which nobody creates objects.
func unusedDefinition(n int) ([]byte, error) {
	properties := fields{}
	schema := fields{"type": "object", "properties": fields{"spec": fields{"type": "object", "properties": properties},
		"status": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
	if err := fill(schema, properties, *schemaSize); err != nil {
		return nil, err
	}
	return definition(fmt.Sprintf("group%d.example.com", n%20), fmt.Sprint("things", n), fmt.Sprint("thing", n), fmt.Sprint("Thing", n), schema)
}

// writeDefinitions writes all definitions to a file of one list.
func writeDefinitions(name string) error {
	items := make([]json.RawMessage, *count)
	for n := range items {
		var err error
		if items[n], err = unusedDefinition(n); err != nil {
			return err
		}
	}
	text, err := json.Marshal(fields{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}
	report("definition", float64(len(text))/1e3/float64(*count), "kB")
	return os.WriteFile(name, text, 0o600)
}

// measureDefinitions has one kubectl create the definitions. All times are from when it starts.
func measureDefinitions(ctx context.Context, c *client) error {
	directory, err := os.MkdirTemp("", "definitions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "definitions.json")
	if err := writeDefinitions(file); err != nil {
		return err
	}
	before, err := reportMemory("memory-before")
	if err != nil {
		return err
	}
	cpuBefore, err := server.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	since := func(name string) { report(name, time.Since(start).Seconds(), "s") }
	var watching sync.WaitGroup
	var failure error
	watching.Go(func() {
		if failure = waitEstablished(ctx, c); failure == nil {
			since("established")
		}
	})
	create := exec.CommandContext(ctx, *kubectl, "--kubeconfig", *kubeconfig, "create", "--validate=false", "-f", file)
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl create: %w: %s", err, out[max(0, len(out)-1000):])
	}
	since("created")
	if watching.Wait(); failure != nil {
		return failure
	}
	for _, shown := range []struct {
		name string
		all  func(context.Context, *client) (bool, error)
	}{{"in-discovery", allInDiscovery}, {"in-openapi-v3", allInOpenAPIv3}, {"in-openapi-v2", allInOpenAPIv2}} {
		if err := until(ctx, 100*time.Millisecond, func() (bool, error) { return shown.all(ctx, c) }); err != nil {
			return err
		}
		since(shown.name)
	}
	if err := reportCPU("definition", cpuBefore, *count); err != nil {
		return err
	}
	time.Sleep(*restTime)
	after, err := reportMemory("memory-after")
	if err == nil {
		report("memory-per-definition", float64(after-before)/1e3/float64(*count), "kB")
	}
	return err
}

// waitServed waits until all definitions are in discovery.
func waitServed(ctx context.Context, c *client) error {
	return until(ctx, 10*time.Millisecond, func() (bool, error) {
		all, err := allInDiscovery(ctx, c)
		return all && err == nil, nil
	})
}

// waitEstablished follows the definitions until all are established.
func waitEstablished(ctx context.Context, c *client) error {
	established := map[string]bool{}
	for len(established) < *count {
		// The watch begins anew when the server ends it.
		events, err := c.open(ctx, http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=true", nil)
		if err != nil {
			return err
		}
		for decoder := json.NewDecoder(events); len(established) < *count; {
			var event struct {
				Object struct {
					Metadata struct {
						Name string `json:"name"`
					} `json:"metadata"`
					Status struct {
						Conditions []struct {
							Type   string `json:"type"`
							Status string `json:"status"`
						} `json:"conditions"`
					} `json:"status"`
				} `json:"object"`
			}
			if err := decoder.Decode(&event); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				break
			}
			for _, condition := range event.Object.Status.Conditions {
				if condition.Type == "Established" && condition.Status == "True" {
					established[event.Object.Metadata.Name] = true
				}
			}
		}
		events.Close()
	}
	return nil
}

func isThing(name string) bool { return strings.HasPrefix(name, "things") }

func allInDiscovery(ctx context.Context, c *client) (bool, error) {
	var groups struct {
		Items []struct {
			Versions []struct {
				Resources []struct {
					Resource string `json:"resource"`
				} `json:"resources"`
			} `json:"versions"`
		} `json:"items"`
	}
	if err := c.decode(ctx, "/apis", groupListType, &groups); err != nil {
		return false, err
	}
	found := 0
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			for _, resource := range version.Resources {
				if isThing(resource.Resource) {
					found++
				}
			}
		}
	}
	return found == *count, nil
}

// paths are those of an OpenAPI document, or, in the index of version 3, the documents of the group versions.
type paths struct {
	Paths map[string]json.RawMessage `json:"paths"`
}

// collections returns the paths of the definitions' resources themselves, across namespaces.
func (p paths) collections() int {
	found := 0
	for path := range maps.Keys(p.Paths) {
		if parts := strings.Split(path, "/"); len(parts) == 5 && isThing(parts[4]) { // /apis/GROUP/v1/thingsN
			found++
		}
	}
	return found
}

func allInOpenAPIv3(ctx context.Context, c *client) (bool, error) {
	var index paths
	if err := c.decode(ctx, "/openapi/v3", jsonType, &index); err != nil {
		return false, err
	}
	found := 0
	for path := range index.Paths {
		if !strings.HasPrefix(path, "apis/group") {
			continue
		}
		var document paths
		if err := c.decode(ctx, "/openapi/v3/"+path, jsonType, &document); err != nil {
			return false, except(http.StatusNotFound, err)
		}
		found += document.collections()
	}
	return found == *count, nil
}

func allInOpenAPIv2(ctx context.Context, c *client) (bool, error) {
	var document paths
	err := c.decode(ctx, "/openapi/v2", jsonType, &document)
	return document.collections() == *count, err
}

func (c *client) decode(ctx context.Context, path, accept string, into any) error {
	text, err := c.do(ctx, http.MethodGet, path, nil, "Accept", accept)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
