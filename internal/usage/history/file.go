package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

const (
	// header begins the file; the checksum and the length of what follows are in the rest of its first line.
	header = "skiff-usage-history 1 %08x %d\n"
	// maxFile bounds how much of a file is read.
	maxFile = 64 << 20
	// aside is appended to the name of a file that cannot be read.
	aside = ".damaged"
)

// stored is the history of a key as it is in the file.
type stored struct {
	Namespace string      `json:"namespace"`
	Image     string      `json:"image"`
	Days      []storedDay `json:"days"`
}

type storedDay struct {
	Day    day         `json:"day"`
	CPU    [][2]uint32 `json:"cpu"` // buckets and counts
	Memory [][2]uint32 `json:"memory"`
}

// Open returns the history in a file, which need not exist. A file that cannot be read is put aside.
func Open(file string, log *slog.Logger) *History {
	h := &History{file: file, log: log, images: map[key]map[day]*use{}}
	err := h.load()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return h
	}
	log.Warn("failed to read what containers have used, which is put aside; the history begins anew", "file", file, "aside", file+aside, "err", err)
	if err := os.Rename(file, file+aside); err != nil {
		log.Warn("failed to put a damaged file aside", "file", file, "err", err)
	}
	return h
}

func (h *History) load() error {
	f, err := os.Open(h.file)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	images, buckets, err := decode(data)
	if err != nil {
		return err
	}
	h.images, h.buckets = images, buckets
	return nil
}

// decode reads the content of a file.
func decode(data []byte) (images map[key]map[day]*use, buckets int, err error) {
	if len(data) > maxFile {
		return nil, 0, fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	line, body, _ := bytes.Cut(data, []byte("\n"))
	var sum, length uint32
	if len(line) > 2*len(header) {
		return nil, 0, errors.New("it does not begin as such a file does")
	}
	if _, err := fmt.Sscanf(string(line)+"\n", header, &sum, &length); err != nil {
		return nil, 0, errors.New("it does not begin as such a file does")
	}
	if int(length) != len(body) || sum != crc32.ChecksumIEEE(body) {
		return nil, 0, errors.New("its checksum is wrong")
	}
	var all []stored
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, 0, err
	}
	images = map[key]map[day]*use{}
	for _, one := range all {
		of := map[day]*use{}
		for _, d := range one.Days {
			u := &use{}
			for r, counts := range [resources][][2]uint32{CPU: d.CPU, Memory: d.Memory} {
				for _, c := range counts {
					if c[0] > 255 || c[1] == 0 || !u[r].add(uint8(c[0]), c[1]) {
						return nil, 0, fmt.Errorf("%s in %s has an invalid count", one.Image, one.Namespace)
					}
					buckets++
				}
			}
			if of[d.Day] != nil {
				return nil, 0, fmt.Errorf("%s in %s has a day twice", one.Image, one.Namespace)
			}
			of[d.Day] = u
		}
		k := key{one.Namespace, one.Image}
		if images[k] != nil || len(of) == 0 || k.image == "" || len(k.image) > maxName || len(k.namespace) > maxName {
			return nil, 0, fmt.Errorf("%s in %s is not valid, or there twice", one.Image, one.Namespace)
		}
		images[k] = of
	}
	if len(images) > maxImages || buckets > maxBuckets {
		return nil, 0, fmt.Errorf("it has %d images and %d counts, more than there may be", len(images), buckets)
	}
	return images, buckets, nil
}

// encode returns the content of the file.
func (h *History) encode() ([]byte, error) {
	all := []stored{}
	for k, of := range h.images {
		one := stored{Namespace: k.namespace, Image: k.image}
		for _, d := range sortedDays(of) {
			one.Days = append(one.Days, storedDay{d, pairs(of[d][CPU]), pairs(of[d][Memory])})
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Image, b.Image))
	})
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return withHeader(body), nil
}

func withHeader(body []byte) []byte {
	return append(fmt.Appendf(nil, header, crc32.ChecksumIEEE(body), len(body)), body...)
}

func pairs(h histogram) [][2]uint32 {
	all := make([][2]uint32, len(h))
	for i, c := range h {
		all[i] = [2]uint32{uint32(c.Bucket), c.Count}
	}
	return all
}

// Save writes the history to its file if it has changed. The file is always a whole one.
func (h *History) Save() error {
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	if !h.changed {
		h.mu.Unlock()
		return nil
	}
	data, err := h.encode()
	h.changed = false
	h.mu.Unlock()
	if err == nil {
		err = write(h.file, data)
	}
	if err != nil {
		h.mu.Lock()
		h.changed = true
		h.mu.Unlock()
		return fmt.Errorf("failed to write what containers have used: %w", err)
	}
	return nil
}

// write replaces a file by another one, which is on the disk when it returns.
func write(file string, data []byte) (err error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
