package response

import (
	"bytes"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
)

// Many clients that list the same at once, as all do after a restart, are answered with the same compressed bytes: CompressedLists keeps
// those of the latest lists for a moment.
type CompressedLists struct {
	mu    sync.Mutex
	lists map[listKey]*zippedList
	bytes int
}

const (
	maxZippedLists = 16
	maxZippedBytes = 8 << 20
	// zippedTime is how long a list is kept after it was last asked for.
	zippedTime = 5 * time.Second
)

// listKey is everything that decides what is in a list.
type listKey struct {
	resource  schema.GroupVersionResource
	namespace string
	query     string
	media     codec.Media
	revision  int64
}

// zippedList is a list that was asked for: at first only that, later also its compressed form.
type zippedList struct {
	body   []byte
	making bool
	used   time.Time
}

// find returns the compressed form of a list if there is one. Otherwise it says whether the caller is to make it with keep: the first
// who asks is not, if compressing for one would not pay.
func (z *CompressedLists) find(key listKey, pays bool) (body []byte, mine bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	list := z.lists[key]
	if list == nil {
		if len(z.lists) >= maxZippedLists {
			return nil, false
		}
		if z.lists == nil {
			z.lists = map[listKey]*zippedList{}
		}
		if len(z.lists) == 0 {
			time.AfterFunc(zippedTime, z.expire)
		}
		list = &zippedList{}
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

// keep keeps what was made, if there is room.
func (z *CompressedLists) keep(key listKey, body []byte) {
	z.mu.Lock()
	defer z.mu.Unlock()
	list := z.lists[key]
	if list == nil || z.bytes+len(body) > maxZippedBytes {
		return // it stays marked as being made, and is forgotten soon
	}
	list.body = body
	z.bytes += len(body)
}

// expire forgets lists that nobody asks for any more, and comes back while there are others.
func (z *CompressedLists) expire() {
	z.mu.Lock()
	defer z.mu.Unlock()
	for key, list := range z.lists {
		if time.Since(list.used) >= zippedTime {
			z.bytes -= len(list.body)
			delete(z.lists, key)
		}
	}
	if len(z.lists) > 0 {
		time.AfterFunc(zippedTime, z.expire)
	}
}

// zippedList is the compressed form of a list that others ask for too, or nil if it has to be made for this answer alone.
func (rs *Responder) zippedList(size int, revision int64, write func(*listWriter)) []byte {
	if revision == 0 || size < compressAbove || !acceptsGzip(rs.Request) || rs.Query.Has("limit") || rs.Query.Has("continue") {
		return nil
	}
	key := listKey{rs.Resource.Info.GVR, rs.Route.Namespace, rs.URL.RawQuery, rs.Accept.Media, revision}
	body, mine := rs.Shared.Lists.find(key, !fromThisHost(rs.Request))
	if mine {
		body = zip(write)
		rs.Shared.Lists.keep(key, body)
	}
	return body
}

// zip compresses what is written.
func zip(write func(*listWriter)) []byte {
	var compressed bytes.Buffer
	z := gzips.Get().(*gzip.Writer)
	z.Reset(&compressed)
	writePieces(z, write)
	_ = z.Close() // to memory
	gzips.Put(z)
	return bytes.Clone(compressed.Bytes())
}
