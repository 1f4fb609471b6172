package csi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// recordName is the file that says what is mounted beside it.
const recordName = "vol_data.json"

// record is what a vol_data.json says. Its keys are upstream's, but for the last three, which upstream does not have.
type record struct {
	Name         string `json:"specVolID,omitempty"`
	Handle       string `json:"volumeHandle"`
	Driver       string `json:"driverName"`
	Node         string `json:"nodeName,omitempty"`
	Mode         string `json:"volumeLifecycleMode,omitempty"`
	AttachmentID string `json:"attachmentID,omitempty"`
	Block        string `json:"block,omitempty"`     // "true" for a block device
	Attached     string `json:"attached,omitempty"`  // "true" if a controller attaches the volume
	Published    string `json:"published,omitempty"` // "true" if the driver may have published the volume for the pod
}

// save writes the record into a directory, as a whole or not at all.
func (r *record) save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	part := filepath.Join(dir, "."+recordName)
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, recordName))
}

// load reads the record in a directory; nil if there is none, or one that was cut off when the machine lost power and with it everything mounted.
func load(dir string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if json.Unmarshal(data, r) != nil {
		return nil, nil
	}
	return r, nil
}

// remove removes the record in a directory, and the directory if nothing else is in it.
func remove(dir string) error {
	for _, path := range []string{filepath.Join(dir, "."+recordName), filepath.Join(dir, recordName), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
