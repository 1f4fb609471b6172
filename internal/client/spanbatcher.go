package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"skiff/internal/journey"
)

// spanSink records spans: in the server in this process, or over the network.
type spanSink interface{ PutSpan(journey.Span) }

const (
	spanDelay   = 200 * time.Millisecond // how long a span waits to be batched with others
	maxSpans    = 1024                   // number of spans queued at most; further ones are dropped
	spanTimeout = 10 * time.Second       // time limit of sending a batch
)

// spanBatcher sends spans to the server in batches. At most one batch is in flight; no goroutine runs while the queue is empty. A batch that
// cannot be sent is dropped: retrying would cost components more than the span is worth.
type spanBatcher struct {
	send func(context.Context, []journey.Span) error

	mu             sync.Mutex
	queue          []journey.Span
	flushScheduled bool // whether flush will run or is running
	dropped        int  // number of spans dropped
}

// PutSpan queues a span.
func (b *spanBatcher) PutSpan(s journey.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) >= maxSpans {
		b.dropped++
		return
	}
	b.queue = append(b.queue, s)
	if !b.flushScheduled {
		b.flushScheduled = true
		time.AfterFunc(spanDelay, b.flush)
	}
}

// flush sends a batch of the queue, and schedules itself again as long as there are more.
func (b *spanBatcher) flush() {
	b.mu.Lock()
	batch := b.queue[:journey.FirstBatch(b.queue)]
	b.queue = b.queue[len(batch):]
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), spanTimeout)
	defer cancel()
	err := b.send(ctx, batch)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.dropped += len(batch)
	}
	if b.flushScheduled = len(b.queue) > 0; b.flushScheduled {
		time.AfterFunc(spanDelay, b.flush)
	}
}

// sendSpans posts spans to the server.
func (c *Client) sendSpans(ctx context.Context, batch []journey.Span) error {
	body, err := json.Marshal(journey.Batch{Spans: batch})
	if err != nil {
		return err
	}
	root, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, root.JoinPath(journey.PathSpans).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the server answered %s to spans", response.Status)
	}
	return nil
}
