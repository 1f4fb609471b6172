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
	file string // empty if they are not kept

	mu     sync.Mutex
	pulled map[string]*access // by the image's id
}

// access is who may use an image.
type access struct {
	Anyone bool
	By     []grant
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
		r.pulled = map[string]*access{} // what it said is lost: images count as put there
	}
	return r, nil
}

func (c Credentials) grant() grant {
	sum := sha256.Sum256([]byte(c.Username + "\x00" + c.Password))
	return grant{c.Secret, hex.EncodeToString(sum[:])}
}

// allows reports whether a pod with some credentials may use an image that is there.
func (r *records) allows(id string, credentials []Credentials) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.pulled[id]
	if is == nil || is.Anyone {
		return true
	}
	for _, c := range credentials {
		own := c.grant()
		for _, g := range is.By {
			if g.Secret == own.Secret || g.Hash == own.Hash {
				return true
			}
		}
	}
	return false
}

// add notes that an image was pulled, with some credentials or none.
func (r *records) add(id string, with *Credentials) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.pulled[id]
	if is == nil {
		is = &access{}
		r.pulled[id] = is
	}
	switch {
	case is.Anyone:
		return nil
	case with == nil:
		is.Anyone, is.By = true, nil
	default:
		own := with.grant()
		for _, g := range is.By {
			if g == own {
				return nil
			}
		}
		is.By = append(is.By, own)
		is.By = is.By[max(0, len(is.By)-maxGrants):]
	}
	return r.save()
}

// keep forgets images that are gone.
func (r *records) keep(there map[string]bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for id := range r.pulled {
		if !there[id] {
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
