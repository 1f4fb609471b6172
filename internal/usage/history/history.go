package history

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// days is how long numbers are kept.
	days = 30
	// maxImages bounds how many namespaces and images there are histograms of.
	maxImages = 2000
	// maxBuckets bounds the buckets of all histograms: 3 MB.
	maxBuckets = 400_000
	// maxName bounds the length of the names that count: no valid image has a longer one.
	maxName = 1024
)

// day is the number of a day since 1970.
type day int32

func dayOf(t time.Time) day { return day(t.Unix() / int64((24*time.Hour)/time.Second)) }

// key names the containers that are counted together.
type key struct{ namespace, image string }

// use is what the containers of a key have used on a day.
type use [resources]histogram

// History has what containers have used. It is safe for concurrent use.
type History struct {
	file string
	log  *slog.Logger

	mu      sync.Mutex
	images  map[key]map[day]*use
	buckets int  // of all histograms
	trimmed day  // when old days were dropped last
	changed bool // since it was written

	saving sync.Mutex // held while the file is written
}

// Add counts what a container uses at a time.
func (h *History) Add(namespace, image string, at time.Time, cpu, memory uint64) {
	if image == "" || len(image) > maxName || len(namespace) > maxName {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = true
	u := h.use(key{namespace, image}, dayOf(at))
	for r, n := range [resources]uint64{CPU: cpu, Memory: memory} {
		if u[r].add(bucketOf(Resource(r), n), 1) {
			h.buckets++
		}
	}
	h.trim(dayOf(at))
}

// use returns the histograms of a key on a day.
func (h *History) use(k key, d day) *use {
	of := h.images[k]
	if of == nil {
		of = map[day]*use{}
		h.images[k] = of
	}
	if of[d] == nil {
		of[d] = &use{}
	}
	return of[d]
}

// trim drops what is older than it is to be kept, once a day, and more if there is too much.
func (h *History) trim(today day) {
	if h.buckets <= maxBuckets && len(h.images) <= maxImages && h.trimmed == today {
		return
	}
	h.trimmed = today
	there := map[day]*use{}
	for _, of := range h.images {
		maps.Copy(there, of)
	}
	for _, d := range sortedDays(there) {
		if d >= today || d > today-days && h.buckets <= maxBuckets {
			break
		}
		for k, of := range h.images {
			if of[d] != nil {
				h.dropDay(k, d)
			}
		}
	}
	for len(h.images) > maxImages || h.buckets > maxBuckets {
		h.dropKey(h.unseen())
	}
}

func (h *History) dropDay(k key, d day) {
	for _, histogram := range h.images[k][d] {
		h.buckets -= len(histogram)
	}
	if delete(h.images[k], d); len(h.images[k]) == 0 {
		delete(h.images, k)
	}
}

func (h *History) dropKey(k key) {
	for d := range h.images[k] {
		h.dropDay(k, d)
	}
}

// unseen returns the key of the containers that were not seen for the longest time.
func (h *History) unseen() (unseen key) {
	last := day(1<<31 - 1)
	for k, of := range h.images {
		latest := day(0)
		for d := range of {
			latest = max(latest, d)
		}
		if latest < last || latest == last && (k.image < unseen.image || k.image == unseen.image && k.namespace < unseen.namespace) {
			unseen, last = k, latest
		}
	}
	return unseen
}

// Query selects containers.
type Query struct {
	Namespace string // any if empty
	Image     string
	AnyTag    bool          // whether containers of the same image with another tag or digest count, too
	Within    time.Duration // how far back, in whole days
}

// Percentile returns a number that percent of the numbers of the selected containers do not exceed, and how many numbers there are.
func (h *History) Percentile(q Query, r Resource, percent int, now time.Time) (value, numbers uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := dayOf(now.Add(-q.Within))
	var sum histogram
	name := withoutTag(q.Image)
	for k, of := range h.images {
		if q.Namespace != "" && k.namespace != q.Namespace || k.image != q.Image && !(q.AnyTag && withoutTag(k.image) == name) {
			continue
		}
		for d, u := range of {
			if d < since {
				continue
			}
			for _, c := range u[r] {
				sum.add(c.Bucket, c.Count)
			}
		}
	}
	return sum.percentile(r, percent)
}

// withoutTag returns the name of an image without its tag and digest.
func withoutTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i]
	}
	return image
}

// sortedDays returns the days of a key in order.
func sortedDays(of map[day]*use) []day {
	return slices.Sorted(maps.Keys(of))
}
