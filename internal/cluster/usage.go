package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/client-go/rest"
)

// DatabaseUsage is the usage of a cluster's database, in bytes.
type DatabaseUsage struct {
	Size, InUse int64
	Quota       int64          // 0 if it is unknown
	Largest     []StorageShare // the largest shares; empty while the database is less than half full
}

// StorageShare is how much of the database the objects of a resource in a namespace take.
type StorageShare struct {
	Namespace, Resource string
	Bytes               int64
}

// largestShares is how many shares a status has.
const largestShares = 3

var storageLine = regexp.MustCompile(`^(apiserver_storage_size_bytes|skiff_storage_in_use_bytes|skiff_storage_quota_bytes|skiff_storage_namespace_bytes)(?:\{(?:namespace="([^"]*)",resource="([^"]*)"|[^}]*)\})? (\S+)$`)

// readUsage reads the usage of the database from the metrics of the API server.
func readUsage(ctx context.Context, client rest.Interface) (DatabaseUsage, error) {
	text, err := client.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return DatabaseUsage{}, err
	}
	return parseUsage(text), nil
}

// parseUsage returns the usage that metrics in the text format of Prometheus report.
func parseUsage(metrics []byte) (u DatabaseUsage) {
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	for lines.Scan() {
		m := storageLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			continue
		}
		switch n := int64(value); m[1] {
		case "apiserver_storage_size_bytes":
			u.Size = n
		case "skiff_storage_in_use_bytes":
			u.InUse = n
		case "skiff_storage_quota_bytes":
			u.Quota = n
		default:
			u.Largest = append(u.Largest, StorageShare{Namespace: m[2], Resource: m[3], Bytes: n})
		}
	}
	slices.SortFunc(u.Largest, func(a, b StorageShare) int { return cmp.Compare(b.Bytes, a.Bytes) })
	u.Largest = u.Largest[:min(len(u.Largest), largestShares)]
	return u
}
