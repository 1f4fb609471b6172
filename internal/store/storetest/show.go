package storetest

import (
	"fmt"
	"strings"

	"skiff/internal/store"
)

// The functions here print what a test got, so that differences are readable and comparable as text.

func show(kv store.KV) string {
	return fmt.Sprintf("%q=%s at %d", kv.Key, showValue(kv.Value), kv.Revision)
}

func showValue(value []byte) string {
	if len(value) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", value[:40], len(value))
	}
	return fmt.Sprintf("%q", value)
}

func showEvent(e store.Event) string {
	switch {
	case e.Deleted:
		return fmt.Sprintf("delete %q at %d", e.Key, e.Revision)
	case e.Created:
		return fmt.Sprintf("create %q=%s at %d", e.Key, showValue(e.Value), e.Revision)
	}
	return fmt.Sprintf("update %q=%s at %d", e.Key, showValue(e.Value), e.Revision)
}

func showEvents(events []store.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, showEvent(e))
	}
	return b.String()
}

func showList(r store.ListResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d count %d more %v\n", r.Revision, r.Count, r.More)
	for _, kv := range r.KVs {
		fmt.Fprintln(&b, show(kv))
	}
	return b.String()
}
