package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// measureWatch changes one object that many clients watch: first as fast as the server takes the changes, for the rate at which events are
// delivered, then at a steady 50 a second, for how late they arrive.
func measureWatch(ctx context.Context, c *client) error {
	body, err := object(kind, "watched")
	if err != nil {
		return err
	}
	if err := c.drain(ctx, http.MethodPost, objectsOf(plural), body); err != nil {
		return err
	}
	before, err := server.cpu()
	if err != nil {
		return err
	}
	took, lags, err := watch(ctx, c, 0)
	if err != nil {
		return err
	}
	report("watch-events", float64(len(lags))/took.Seconds(), "events/s")
	if err := reportCPU("watch-events", before, len(lags)); err != nil {
		return err
	}
	if _, lags, err = watch(ctx, c, 20*time.Millisecond); err != nil {
		return err
	}
	report("watch-lag-p50", milliseconds(median(lags)), "ms")
	return nil
}

// watch opens the watches, changes the object with a pause after each change, and returns how long it took until all watchers have seen all
// changes, and how late each of them saw each.
func watch(ctx context.Context, c *client, pause time.Duration) (time.Duration, []time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lags, failures := make([][]time.Duration, *watchers), make([]error, *watchers)
	var opening, reading sync.WaitGroup
	turns := make(chan struct{}, *concurrency)
	for w := range *watchers {
		opening.Add(1)
		reading.Go(func() {
			turns <- struct{}{}
			events, err := c.open(ctx, http.MethodGet, objectsOf(plural)+"?watch=true&fieldSelector=metadata.name%3Dwatched", nil)
			<-turns
			opening.Done()
			if failures[w] = err; err != nil {
				return
			}
			defer events.Close()
			lags[w], failures[w] = readEvents(bufio.NewReaderSize(events, 16<<10))
		})
	}
	opening.Wait()
	start := time.Now()
	for range *updates {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"sent":%q}}}`, time.Now().Format(time.RFC3339Nano))
		if err := c.drain(ctx, http.MethodPatch, objectsOf(plural)+"/watched", patch, "Content-Type", mergePatchType); err != nil {
			cancel()
			reading.Wait()
			return 0, nil, err
		}
		time.Sleep(pause)
	}
	reading.Wait()
	for _, err := range failures {
		if err != nil {
			return 0, nil, err
		}
	}
	return time.Since(start), slices.Concat(lags...), nil
}

// readEvents reads until all changes are seen, and returns how late each was. The event is not decoded but for when the change was sent.
func readEvents(events *bufio.Reader) ([]time.Duration, error) {
	lags := make([]time.Duration, 0, *updates)
	for len(lags) < *updates {
		event, err := events.ReadSlice('\n')
		if err != nil {
			return nil, fmt.Errorf("a watch ended after %d of %d events: %w", len(lags), *updates, err)
		}
		if !bytes.HasPrefix(event, []byte(`{"type":"MODIFIED"`)) {
			continue
		}
		_, sent, found := bytes.Cut(event, []byte(`"sent":"`))
		if !found {
			return nil, fmt.Errorf("an event without the annotation: %s", event)
		}
		sent, _, _ = bytes.Cut(sent, []byte(`"`))
		at, err := time.Parse(time.RFC3339Nano, string(sent))
		if err != nil {
			return nil, err
		}
		lags = append(lags, time.Since(at))
	}
	return lags, nil
}
