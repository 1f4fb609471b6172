package response

import (
	"bytes"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
)

// CompressedLists keeps the compressed bytes of the latest lists for a few seconds. Many clients that list the same at once, as they do after a
// restart, are answered with the same bytes.
type CompressedLists struct {
	mu    sync.Mutex
	lists map[listKey]*compressedList
	bytes int
}

const (
	maxCompressedLists = 16
	maxCompressedBytes = 8 << 20
	// compressedListTTL is how long a list is kept after it was last requested.
	compressedListTTL = 5 * time.Second
)

// listKey is everything that decides which bytes a list has.
type listKey struct {
	resource  schema.GroupVersionResource
	namespace string
	query     string
	media     codec.Media
	revision  int64
}

// compressedList is a list that was requested. Its body is nil until somebody has compressed it.
type compressedList struct {
	body   []byte
	making bool
	used   time.Time
}

// find returns the compressed bytes of a list, if they are kept. Otherwise mustCompress reports whether the caller is to compress the list and keep the bytes:
// the first that requests a list is to only if pays says that compressing pays for one client.
func (z *CompressedLists) find(key listKey, pays bool) (body []byte, mustCompress bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	list := z.lists[key]
	if list == nil {
		if len(z.lists) >= maxCompressedLists {
			return nil, false
		}
		if z.lists == nil {
			z.lists = map[listKey]*compressedList{}
		}
		if len(z.lists) == 0 {
			time.AfterFunc(compressedListTTL, z.expire)
		}
		list = &compressedList{}
		z.lists[key] = list
	} else {
		pays = true
	}
	list.used = time.Now()
	if list.body != nil || list.making || !pays {
		return list.body, false
	}
	list.making = true
	return nil, true
}

// keep keeps the compressed bytes of a list, if there is room.
func (z *CompressedLists) keep(key listKey, body []byte) {
	z.mu.Lock()
	defer z.mu.Unlock()
	list := z.lists[key]
	if list == nil || z.bytes+len(body) > maxCompressedBytes {
		return // it stays marked as being compressed until it expires
	}
	list.body = body
	z.bytes += len(body)
}

// expire removes the lists that were not requested for compressedListTTL, and runs again later while others remain.
func (z *CompressedLists) expire() {
	z.mu.Lock()
	defer z.mu.Unlock()
	for key, list := range z.lists {
		if time.Since(list.used) >= compressedListTTL {
			z.bytes -= len(list.body)
			delete(z.lists, key)
		}
	}
	if len(z.lists) > 0 {
		time.AfterFunc(compressedListTTL, z.expire)
	}
}

// compressedList returns the compressed bytes of a list that other clients request too; nil if the list is to be encoded for this response alone.
func (rs *Responder) compressedList(size int, revision int64, write func(*listWriter)) []byte {
	if revision == 0 || size < minCompressedSize || !acceptsGzip(rs.Request) || rs.Query.Has("limit") || rs.Query.Has("continue") {
		return nil
	}
	key := listKey{rs.Resource.Info.GVR, rs.Route.Namespace, rs.URL.RawQuery, rs.Accept.Media, revision}
	body, mustCompress := rs.Shared.Lists.find(key, !fromThisHost(rs.Request))
	if mustCompress {
		body = compress(write)
		rs.Shared.Lists.keep(key, body)
	}
	return body
}

// compress returns what write writes, compressed.
func compress(write func(*listWriter)) []byte {
	var compressed bytes.Buffer
	z := gzips.Get().(*gzip.Writer)
	z.Reset(&compressed)
	writeChunked(z, write)
	_ = z.Close() // to memory
	gzips.Put(z)
	return bytes.Clone(compressed.Bytes())
}
