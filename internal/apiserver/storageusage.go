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
	// usagePage is how many objects a scan of the database reads at a time, usagePause is the time between two such pages.
	usagePage  = 64
	usagePause = 2 * time.Millisecond
	// maxUsageSeries bounds how many series skiff_storage_namespace_bytes has.
	maxUsageSeries = 10
	// usageRoundsPerScan is how many readings of the usage pass between two scans while no further threshold is reached.
	usageRoundsPerScan = 10
	// eventSharePercent is the share of the database from which a namespace gets an event about it.
	eventSharePercent = 10 // percent
)

// usageThresholds are the percentages of the quota at which the namespaces with the most data are warned.
var usageThresholds = []int64{50, 75, 90}

// StoreUsage is how full the store's database is, in bytes.
type StoreUsage struct {
	Size  int64 // of the database file
	InUse int64 // bytes of the file that hold data
	Quota int64 // bytes that the database may hold; 0 if unknown
}

// percent returns how much of the quota is in use; 0 if there is no quota.
func (u StoreUsage) percent() int64 {
	if u.Quota <= 0 {
		return 0
	}
	return u.InUse * 100 / u.Quota
}

// threshold returns the highest threshold that is reached; 0 if none is.
func (u StoreUsage) threshold() (reached int64) {
	for _, threshold := range usageThresholds {
		if u.percent() >= threshold {
			reached = threshold
		}
	}
	return reached
}

// resourceUsage is how much of the database the objects of a resource in a namespace take. The namespace of cluster-scoped objects is empty.
type resourceUsage struct {
	namespace, resource string
	bytes, objects      int64
	kind                schema.GroupVersionKind
	largest             string // name of the largest object
	largestBytes        int64
}

// watchUsage reads periodically how full the database is, for metrics. From the first threshold on it also scans the database for how much each
// namespace takes, and warns the largest whenever a further threshold is reached.
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
			} else if reached > warned || rounds%usageRoundsPerScan == 0 {
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

// reportUsage sets the metric of the largest usages and, if warn is set, warns their namespaces.
func (s *Server) reportUsage(ctx context.Context, u StoreUsage, warn bool) {
	resourceUsages, err := s.resourceUsages(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Warn("failed to add up what namespaces take of the database", "err", err)
		}
		return
	}
	s.api.Metrics.Storage.Share.Reset()
	for _, one := range resourceUsages[:min(len(resourceUsages), maxUsageSeries)] {
		s.api.Metrics.Storage.Share.WithLabelValues(one.namespace, one.resource).Set(float64(one.bytes))
	}
	if !warn {
		return
	}
	for _, one := range resourceUsages[:min(len(resourceUsages), 3)] {
		s.opts.Log.Warn("database is filling up, events are refused at 80 % of the quota and other objects at 95 %", "percent", u.percent(), "quota", u.Quota, "namespace", one.namespace, "resource", one.resource, "objects", one.objects, "bytes", one.bytes)
		if one.bytes*100 < u.InUse*eventSharePercent {
			continue
		}
		if err := s.loopback.Create(registry.WithClass(ctx, store.Critical), corev1.Resource("events"), usageEvent(u, one, time.Now())); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("failed to write an event about the database filling up", "namespace", one.namespace, "err", err)
		}
	}
}

// resourceUsages scans the database and returns the usages of all resources and namespaces, the largest first. It reads a few objects at a time.
func (s *Server) resourceUsages(ctx context.Context) ([]resourceUsage, error) {
	var all []resourceUsage
	seen := map[string]bool{}
	for _, info := range s.api.Served().Infos {
		if info.Virtual || seen[info.Stored.StorageName] {
			continue
		}
		stored := info.Stored
		seen[stored.StorageName] = true
		prefix := strings.TrimSuffix(s.opts.EtcdPrefix, "/") + "/" + stored.StorageName + "/"
		of := map[string]*resourceUsage{}
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
					one = &resourceUsage{namespace: namespace, resource: stored.GVR.GroupResource().String(), kind: stored.GVK}
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
	slices.SortFunc(all, func(a, b resourceUsage) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource, b.resource))
	})
	return all, nil
}

// usageEvent returns an event about the usage of a namespace, which refers to its largest object. Events about cluster-scoped objects are in the
// namespace default.
func usageEvent(u StoreUsage, one resourceUsage, now time.Time) *corev1.Event {
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
