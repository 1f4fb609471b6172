package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skiff/internal/journey"
)

func span(stage string) journey.Span {
	return journey.Span{SpanContext: journey.NewSpanContext(journey.SpanContext{}), Component: "test", Stage: stage, Start: time.Now(), Causes: []journey.Cause{{UID: "u", Revision: 1}}}
}

// Spans are sent in batches of the server's limit, one after the other; PutSpan does not block, and spans beyond maxSpans are dropped.
func TestSpanBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		var failure error
		b := &spanBatcher{send: func(ctx context.Context, batch []journey.Span) error {
			sizes = append(sizes, len(batch))
			time.Sleep(time.Second) // a slow server
			if body, err := json.Marshal(journey.Batch{Spans: batch}); err != nil || len(body) > journey.MaxBatchSize {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			if err := (&journey.Batch{Spans: batch}).Check(); err != nil {
				t.Error(err)
			}
			return failure
		}}
		b.PutSpan(span("one"))
		b.PutSpan(span("two"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if fmt.Sprint(sizes) != "[2]" {
			t.Errorf("batches of %v", sizes)
		}
		began := time.Now()
		for i := range 2 * maxSpans {
			b.PutSpan(span(fmt.Sprint("stage ", i)))
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("putting waited %v", waited)
		}
		if b.dropped != maxSpans {
			t.Errorf("%d of %d were dropped", b.dropped, 2*maxSpans)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := 1 + maxSpans/journey.MaxBatch; len(sizes) != want || len(b.queue) != 0 || b.flushScheduled {
			t.Errorf("batches of %v, want %d; %d wait", sizes, want, len(b.queue))
		}
		sizes = nil
		for range 100 {
			large := span("large")
			for i := range 100 {
				large.Attributes = append(large.Attributes, journey.Attribute{Key: fmt.Sprint(i), Value: strings.Repeat("<", 1000)})
			}
			large.Clip()
			b.PutSpan(large)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(sizes) < 2 {
			t.Errorf("large spans went in batches of %v", sizes)
		}
		failure = errors.New("the server is gone")
		b.dropped = 0
		b.PutSpan(span("lost"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		failure = nil
		b.PutSpan(span("not lost"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if b.dropped != 1 || len(b.queue) != 0 {
			t.Errorf("%d dropped, %d wait", b.dropped, len(b.queue))
		}
	})
}
