package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// records are which images were pulled with which secrets. A pod may use an image that is on the node only if it could have pulled it: if anybody
// can, if it has a secret that the image was pulled with, or if nobody pulled it and it was put there.
type records struct {
	file string // empty if records are not kept on disk

	mu     sync.Mutex
	pulled map[string]*access // by image id
}

// access is which pods may use an image.
type access struct {
	Anyone bool    // it was pulled without credentials
	By     []grant // the credentials it was pulled with
}

// grant is a secret that an image was pulled with, and what was in it.
type grant struct{ Secret, Hash string }

// maxGrants bounds how many secrets are remembered for an image.
const maxGrants = 100

func newRecords(dir string) (*records, error) {
	r := &records{pulled: map[string]*access{}}
	if dir == "" {
		return r, nil
	}
	r.file = filepath.Join(dir, "pulled.json")
	data, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, &r.pulled) != nil || r.pulled == nil {
		r.pulled = map[string]*access{} // a damaged file: images count as not pulled
	}
	return r, nil
}

func (c Credentials) grant() grant {
	sum := sha256.Sum256([]byte(c.Username + "\x00" + c.Password))
	return grant{c.Secret, hex.EncodeToString(sum[:])}
}

// allows reports whether a pod with these credentials may use an image that is on the node.
func (r *records) allows(id string, credentials []Credentials) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.pulled[id]
	if entry == nil || entry.Anyone {
		return true
	}
	for _, c := range credentials {
		offered := c.grant()
		for _, g := range entry.By {
			if g.Secret == offered.Secret || g.Hash == offered.Hash {
				return true
			}
		}
	}
	return false
}

// add records that an image was pulled, with credentials or, if nil, without.
func (r *records) add(id string, used *Credentials) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.pulled[id]
	if entry == nil {
		entry = &access{}
		r.pulled[id] = entry
	}
	switch {
	case entry.Anyone:
		return nil
	case used == nil:
		entry.Anyone, entry.By = true, nil
	default:
		added := used.grant()
		for _, g := range entry.By {
			if g == added {
				return nil
			}
		}
		entry.By = append(entry.By, added)
		entry.By = entry.By[max(0, len(entry.By)-maxGrants):]
	}
	return r.save()
}

// keep drops the records of all images but those that are present.
func (r *records) keep(present map[string]bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for id := range r.pulled {
		if !present[id] {
			delete(r.pulled, id)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return r.save()
}

func (r *records) save() error {
	if r.file == "" {
		return nil
	}
	data, err := json.Marshal(r.pulled)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(r.file+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(r.file+".tmp", r.file)
}
