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

// spans is where spans go: to the server in this process, or over the network.
type spans interface{ PutSpan(journey.Span) }

const (
	spanDelay   = 200 * time.Millisecond // how long a span waits for others to go with it
	maxSpans    = 1024                   // waiting; further ones are dropped
	spanTimeout = 10 * time.Second       // of a batch
)

// spanBatches sends spans to the server, some at a time. One batch is under way at most; nothing runs while there is none. A batch that
// cannot be sent is dropped: a journey is to be read now or never, and what components do matters more.
type spanBatches struct {
	send func(context.Context, []journey.Span) error

	mu      sync.Mutex
	waiting []journey.Span
	sending bool
	dropped int // since the last batch that went
}

// PutSpan has a span sent.
func (b *spanBatches) PutSpan(s journey.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= maxSpans {
		b.dropped++
		return
	}
	b.waiting = append(b.waiting, s)
	if !b.sending {
		b.sending = true
		time.AfterFunc(spanDelay, b.flush)
	}
}

// flush sends what is waiting, and comes again as long as there is more.
func (b *spanBatches) flush() {
	b.mu.Lock()
	batch := b.waiting[:journey.FirstBatch(b.waiting)]
	b.waiting = b.waiting[len(batch):]
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), spanTimeout)
	defer cancel()
	err := b.send(ctx, batch)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.dropped += len(batch)
	}
	if b.sending = len(b.waiting) > 0; b.sending {
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
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the server answered %s to spans", answer.Status)
	}
	return nil
}
