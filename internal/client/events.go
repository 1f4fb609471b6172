package client

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// EventSink returns the sink to which an event broadcaster writes its events.
func (c *Client) EventSink() record.EventSink {
	return &typedcorev1.EventSinkImpl{Interface: c.kubernetes.CoreV1().Events("")}
}

// Recorder returns a recorder whose events have the component as their source. It records until ctx ends.
func (c *Client) Recorder(ctx context.Context) record.EventRecorder {
	return c.RecorderAs(ctx, c.component)
}

// RecorderAs returns a recorder whose events have another source than the component's name.
func (c *Client) RecorderAs(ctx context.Context, source string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(c.EventSink())
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: source})
}
