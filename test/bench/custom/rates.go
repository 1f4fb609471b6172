package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	plural = "widgets"
	kind   = "Widget"
)

func nameOf(i int) string { return fmt.Sprintf("widget-%d", i) }

// createNamespace creates the namespace of all objects, unless it is there.
func createNamespace(ctx context.Context, c *client) error {
	err := c.drain(ctx, http.MethodPost, "/api/v1/namespaces", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	return except(http.StatusConflict, err)
}

// except returns nil if the error is a response with the status.
func except(status int, err error) error {
	if response := (*refusal)(nil); errors.As(err, &response) && response.status == status {
		return nil
	}
	return err
}

// prepare creates the namespace and a definition, and waits until its objects are served.
func prepare(ctx context.Context, c *client, plural, singular, kind string) error {
	if err := createNamespace(ctx, c); err != nil {
		return err
	}
	text, err := usedDefinition(plural, singular, kind)
	if err != nil {
		return err
	}
	if err := c.drain(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text); err != nil {
		return err
	}
	return until(ctx, 20*time.Millisecond, func() (bool, error) {
		body, err := object(kind, "first")
		if err != nil {
			return false, err
		}
		err = c.drain(ctx, http.MethodPost, objectsOf(plural)+"?dryRun=All", body)
		return err == nil, except(http.StatusNotFound, err)
	})
}

// until calls f again and again, until it says that it is done or fails.
func until(ctx context.Context, pause time.Duration, f func() (bool, error)) error {
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// bodiesOf returns n objects to create.
func bodiesOf(kind string, n int) ([][]byte, error) {
	bodies := make([][]byte, n)
	for i := range bodies {
		var err error
		if bodies[i], err = object(kind, nameOf(i)); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func measureCreate(ctx context.Context, c *client) error {
	if err := prepare(ctx, c, plural, "widget", kind); err != nil {
		return err
	}
	bodies, err := bodiesOf(kind, *objects)
	if err != nil {
		return err
	}
	return measure("create", *objects, *concurrency, func(i int) error { return c.drain(ctx, http.MethodPost, objectsOf(plural), bodies[i]) })
}

func measureGet(ctx context.Context, c *client) error {
	return measure("get", 2**objects, *concurrency, func(i int) error {
		return c.drain(ctx, http.MethodGet, objectsOf(plural)+"/"+nameOf(i%*objects), nil)
	})
}

func measureLists(ctx context.Context, c *client) error {
	for _, form := range []struct {
		name    string
		headers []string
	}{{"list-json", nil}, {"list-json-gzip", []string{"Accept-Encoding", "gzip"}}, {"list-table", []string{"Accept", tableType}}} {
		if err := measure(form.name, *lists, 4, func(int) error { return c.drain(ctx, http.MethodGet, objectsOf(plural), nil, form.headers...) }); err != nil {
			return err
		}
	}
	return nil
}

// measureUpdate writes each object back as it was read, with another number of replicas.
func measureUpdate(ctx context.Context, c *client) error {
	text, err := c.do(ctx, http.MethodGet, objectsOf(plural), nil)
	if err != nil {
		return err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	paths := make([]string, len(list.Items))
	for i, item := range list.Items {
		var read struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(item, &read); err != nil {
			return err
		}
		paths[i] = objectsOf(plural) + "/" + read.Metadata.Name
		list.Items[i] = bytes.Replace(item, []byte(`"replicas":3`), []byte(`"replicas":4`), 1)
	}
	return measure("update", len(paths), *concurrency, func(i int) error { return c.drain(ctx, http.MethodPut, paths[i], list.Items[i]) })
}

// measureMemory creates objects of a definition of its own and looks at the server's memory before, and after a rest.
func measureMemory(ctx context.Context, c *client) error {
	const plural, kind = "gadgets", "Gadget"
	if err := prepare(ctx, c, plural, "gadget", kind); err != nil {
		return err
	}
	time.Sleep(*restTime)
	before, err := reportMemory("memory-before")
	if err != nil {
		return err
	}
	bodies, err := bodiesOf(kind, *memoryObjects)
	if err != nil {
		return err
	}
	if _, err := inParallel(len(bodies), *concurrency, func(i int) error { return c.drain(ctx, http.MethodPost, objectsOf(plural), bodies[i]) }); err != nil {
		return err
	}
	time.Sleep(*restTime)
	after, err := reportMemory("memory-after")
	if err != nil {
		return err
	}
	report("memory-per-object", float64(after-before)/1e3/float64(*memoryObjects), "kB")
	return nil
}
