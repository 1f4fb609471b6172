package apiserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/cache"
	"skiff/internal/usage"
)

const (
	// measureEvery is how often all nodes are measured for InitialResources.
	measureEvery = time.Minute
	// saveEvery is how often the history is written, if it has changed: so much is lost when the server is killed.
	saveEvery = 5 * time.Minute
)

// usageHistory returns what containers have used, for InitialResources.
func (s *Server) usageHistory() initialresources.History {
	if s.opts.UsageHistory == nil {
		return nil
	}
	return s.opts.UsageHistory
}

// remember adds what the containers of a node use to the history, by their images.
func (s *Server) remember(m *usage.NodeMetrics) {
	if s.opts.UsageHistory == nil {
		return
	}
	pods := s.api.Endpoint("", "v1", "pods").Registry
	for key, containers := range m.Pods {
		it := pods.Cache.Get(pods.Key(key.Namespace, key.Name))
		if it == nil {
			continue
		}
		obj, err := pods.Decode(it)
		if err != nil {
			continue // it cannot be served either, which is logged there
		}
		images := imagesOf(obj.(*corev1.Pod))
		for _, c := range containers {
			s.opts.UsageHistory.Add(key.Namespace, images[c.Name], c.At, c.CPU, c.Memory)
		}
	}
}

// imagesOf returns the images of a pod's containers, as its spec names them.
func imagesOf(pod *corev1.Pod) map[string]string {
	images := map[string]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			images[containers[i].Name] = containers[i].Image
		}
	}
	return images
}

// keepHistory measures all nodes every minute if InitialResources is on, and writes the history every few minutes, and when ctx ends. While the plugin is off,
// and nobody asks for metrics, it does nothing.
func (s *Server) keepHistory(ctx context.Context) {
	save := func() {
		if err := s.opts.UsageHistory.Save(); err != nil {
			s.opts.Log.Warn("failed to save the history of usage", "err", err)
		}
	}
	defer save()
	saving := time.NewTicker(saveEvery)
	defer saving.Stop()
	var measuring <-chan time.Time // never without the plugin
	if s.identity.estimates {
		ticker := time.NewTicker(measureEvery)
		defer ticker.Stop()
		measuring = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-saving.C:
			save()
		case <-measuring:
			_, _ = s.meter.Measure(ctx, s.nodeNames()) // remember gets the results; it fails only when ctx ends
		}
	}
}

func (s *Server) nodeNames() (names []string) {
	s.api.Endpoint("", "v1", "nodes").Registry.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
		names = append(names, it.Name)
		return true
	})
	return names
}
