package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/registry"
	"skiff/internal/store"
)

const (
	usageEvery = 30 * time.Second
	// usagePage bounds how many objects are read at a time to add up their sizes, usagePause is the time between two pages.
	usagePage  = 64
	usagePause = 2 * time.Millisecond
	// usageSeries bounds how many shares the metric shows.
	usageSeries = 10
	// usageScans is how many rounds pass between two scans while the database is no fuller than before.
	usageScans = 10
	// noticeable is the part of the database from which on a namespace is told of its share.
	noticeable = 10 // percent
)

// usageThresholds are the percentages of the quota at which the largest namespaces are warned.
var usageThresholds = []int64{50, 75, 90}

// StoreUsage is how full the store's database is, in bytes.
type StoreUsage struct {
	Size  int64 // of its file
	InUse int64 // that hold something
	Quota int64 // that it may hold; 0 if that is not known
}

// percent is how much of the quota is in use.
func (u StoreUsage) percent() int64 {
	if u.Quota <= 0 {
		return 0
	}
	return u.InUse * 100 / u.Quota
}

// threshold is the highest one that is reached, 0 if none is.
func (u StoreUsage) threshold() (reached int64) {
	for _, threshold := range usageThresholds {
		if u.percent() >= threshold {
			reached = threshold
		}
	}
	return reached
}

// share is what the objects of a resource in a namespace take. The namespace of objects without one is empty.
type share struct {
	namespace, resource string
	bytes, objects      int64
	kind                schema.GroupVersionKind
	largest             string // name of the largest object
	largestBytes        int64
}

// watchUsage looks from time to time how full the database is. From the first threshold on it adds up what each namespace takes, and warns
// the largest each time a threshold is passed.
func (s *Server) watchUsage(ctx context.Context, every time.Duration) {
	warned, rounds := int64(0), 0
	for {
		if u, err := s.opts.StoreUsage(ctx); err != nil {
			if ctx.Err() == nil {
				s.opts.Log.Warn("failed to read the size of the database", "err", err)
			}
		} else {
			s.api.Metrics.Storage.Size.Set(float64(u.Size))
			s.api.Metrics.Storage.InUse.Set(float64(u.InUse))
			s.api.Metrics.Storage.Quota.Set(float64(u.Quota))
			reached := u.threshold()
			if reached == 0 {
				s.api.Metrics.Storage.Share.Reset()
			} else if reached > warned || rounds%usageScans == 0 {
				s.reportUsage(ctx, u, reached > warned)
			}
			warned = reached
			rounds++
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// reportUsage shows the largest shares, and warns their namespaces.
func (s *Server) reportUsage(ctx context.Context, u StoreUsage, warn bool) {
	shares, err := s.shares(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Warn("failed to add up what namespaces take of the database", "err", err)
		}
		return
	}
	s.api.Metrics.Storage.Share.Reset()
	for _, one := range shares[:min(len(shares), usageSeries)] {
		s.api.Metrics.Storage.Share.WithLabelValues(one.namespace, one.resource).Set(float64(one.bytes))
	}
	if !warn {
		return
	}
	for _, one := range shares[:min(len(shares), 3)] {
		s.opts.Log.Warn("database is filling up, events are refused at 80 % of the quota and other objects at 95 %", "percent", u.percent(), "quota", u.Quota, "namespace", one.namespace, "resource", one.resource, "objects", one.objects, "bytes", one.bytes)
		if one.bytes*100 < u.InUse*noticeable {
			continue
		}
		if err := s.loopback.Create(registry.WithClass(ctx, store.Critical), corev1.Resource("events"), usageEvent(u, one, time.Now())); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("failed to write an event about the database filling up", "namespace", one.namespace, "err", err)
		}
	}
}

// shares adds up what all objects take, the largest first. It reads a few objects at a time.
func (s *Server) shares(ctx context.Context) ([]share, error) {
	var all []share
	seen := map[string]bool{}
	for _, info := range s.api.Infos {
		if info.Virtual || seen[info.Stored.StorageName] {
			continue
		}
		stored := info.Stored
		seen[stored.StorageName] = true
		prefix := strings.TrimSuffix(s.opts.EtcdPrefix, "/") + "/" + stored.StorageName + "/"
		of := map[string]*share{}
		for from := ""; ; {
			page, err := s.opts.Store.List(ctx, prefix, store.ListOptions{From: from, Limit: usagePage})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", prefix, err)
			}
			for _, kv := range page.KVs {
				namespace := ""
				if stored.Namespaced {
					namespace, _, _ = strings.Cut(kv.Key[len(prefix):], "/")
				}
				one := of[namespace]
				if one == nil {
					one = &share{namespace: namespace, resource: stored.GVR.GroupResource().String(), kind: stored.GVK}
					of[namespace] = one
				}
				one.objects++
				size := int64(len(kv.Key) + len(kv.Value))
				one.bytes += size
				if size > one.largestBytes {
					one.largest, one.largestBytes = path.Base(kv.Key), size
				}
			}
			if !page.More || len(page.KVs) == 0 {
				break
			}
			from = page.KVs[len(page.KVs)-1].Key + "\x00"
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(usagePause):
			}
		}
		for _, one := range of {
			all = append(all, *one)
		}
	}
	slices.SortFunc(all, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource, b.resource))
	})
	return all, nil
}

// usageEvent tells a namespace of its share, about its largest object. Objects without a namespace are spoken of in default.
func usageEvent(u StoreUsage, one share, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(one.namespace, metav1.NamespaceDefault), Name: fmt.Sprintf("storage.%x", now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: one.kind.GroupVersion().String(), Kind: one.kind.Kind, Namespace: one.namespace, Name: one.largest},
		Reason:         "StorageAlmostFull",
		Message: fmt.Sprintf("the database of the cluster is %d %% full: %d %s take %d of %d bytes; events are refused at 80 %% and other objects at 95 %%",
			u.percent(), one.objects, one.resource, one.bytes, u.Quota),
		Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "apiserver"},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}
