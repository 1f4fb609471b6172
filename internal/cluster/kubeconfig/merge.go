package kubeconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// RecordFile is the file in the data directory that records which kubeconfigs the cluster was added to.
const RecordFile = "merged-kubeconfigs.json"

// maxRecords bounds the kubeconfigs that are recorded; the oldest record is dropped.
const maxRecords = 16

// record says that a cluster was added to a kubeconfig under a name, with checksums of the cluster and the user that were added.
type record struct {
	File, Name, Cluster, User string
}

// Merge adds a cluster's context to the user's kubeconfig, in the file that kubectl would write it to, or brings it up to date. It becomes the current
// context if there was none. A context of that name that leads elsewhere is another cluster's, and an error.
func Merge(dataDir, name string) (file string, err error) {
	options := clientcmd.NewDefaultPathOptions()
	user, err := options.GetStartingConfig()
	if err != nil {
		return "", err
	}
	file = options.GetDefaultFilename()
	if existing := user.Clusters[name]; existing != nil && existing.LocationOfOrigin != "" {
		file = existing.LocationOfOrigin
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	admin, adminConfig, err := readAdmin(dataDir)
	if err == nil && adminConfig.Clusters[name] == nil {
		err = fmt.Errorf("%s is not the kubeconfig of a cluster %q", AdminPath(dataDir), name)
	}
	if err != nil {
		return file, err
	}
	records, err := readRecords(dataDir)
	if err != nil {
		return file, err
	}
	err = editFile(file, func(d *document) error {
		user, err := options.GetStartingConfig() // again: the file is locked now
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(records, recordOf(file, name, user).sameCluster) && leadsElsewhere(user, adminConfig, name) {
			return fmt.Errorf("%q is another cluster's there: remove it (kubectl config delete-context, delete-cluster, delete-user), or give this cluster another --name", name)
		}
		if user.CurrentContext == "" {
			d.set("current-context", name)
		}
		return d.addCluster(admin, name)
	})
	if err != nil {
		return file, fmt.Errorf("failed to add the cluster to %s: %w", file, err)
	}
	return file, records.put(recordOf(file, name, adminConfig)).write(dataDir)
}

// leadsElsewhere reports whether a name in the user's kubeconfig stands for another cluster than the administrator's kubeconfig does. A cluster at the same
// address is the same one, or its predecessor.
func leadsElsewhere(user, admin *api.Config, name string) bool {
	if c := user.Contexts[name]; c != nil && (c.Cluster != name || c.AuthInfo != name) {
		return true
	}
	if existing := user.Clusters[name]; existing != nil {
		return existing.Server != admin.Clusters[name].Server
	}
	return user.AuthInfos[name] != nil
}

// Remove removes a cluster's context from the kubeconfigs that it was added to. A context of the same name that is another cluster's stays.
func Remove(dataDir, name string) error {
	records, err := readRecords(dataDir)
	if err != nil {
		return err
	}
	_, admin, err := readAdmin(dataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if admin != nil && admin.Clusters[name] != nil { // also where the user has copied it to
		for _, file := range clientcmd.NewDefaultPathOptions().GetLoadingPrecedence() {
			if file, err := filepath.Abs(file); err == nil {
				records = append(records, recordOf(file, name, admin))
			}
		}
	}
	for _, r := range records {
		_, err := editIf(r, r.sameCluster, func(d *document) error {
			d.removeCluster(r.Name)
			return nil
		})
		if err != nil {
			return fmt.Errorf("failed to remove the cluster from %s: %w", r.File, err)
		}
	}
	err = os.Remove(filepath.Join(dataDir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Refresh brings the kubeconfigs that a cluster was added to up to date, where they still hold what was added. It returns one error for each that failed.
func Refresh(dataDir string) (problems []error) {
	records, err := readRecords(dataDir)
	if err != nil {
		return []error{err}
	}
	if len(records) == 0 {
		return nil
	}
	admin, adminConfig, err := readAdmin(dataDir)
	if err != nil {
		return []error{err}
	}
	updated := slices.Clone(records)
	for i, r := range records {
		if adminConfig.Clusters[r.Name] == nil {
			continue // the cluster had that name once
		}
		now := recordOf(r.File, r.Name, adminConfig)
		asAdded := func(existing record) bool { return existing == r || existing == now } // now if an earlier Refresh was cut short
		renewed, err := editIf(r, asAdded, func(d *document) error { return d.addCluster(admin, r.Name) })
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.File, err))
		} else if renewed {
			updated[i] = now
		}
	}
	if !slices.Equal(updated, records) {
		if err := updated.write(dataDir); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// editIf edits the kubeconfig of a record if condition holds for what the file has under the record's name now, and reports whether it held.
func editIf(r record, condition func(existing record) bool, edit func(*document) error) (held bool, err error) {
	user, err := clientcmd.LoadFromFile(r.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !condition(recordOf(r.File, r.Name, user)) {
		return false, err
	}
	err = editFile(r.File, func(d *document) error {
		user, err := d.config() // again: the file is locked now
		if held = err == nil && condition(recordOf(r.File, r.Name, user)); !held {
			return err
		}
		return edit(d)
	})
	return held, err
}

// readAdmin reads the administrator's kubeconfig, as a document and as client-go reads it.
func readAdmin(dataDir string) (*document, *api.Config, error) {
	data, err := os.ReadFile(AdminPath(dataDir))
	if err != nil {
		return nil, nil, err
	}
	d, err := parseDocument(data)
	if err != nil {
		return nil, nil, err
	}
	config, err := d.config()
	return d, config, err
}

// recordOf returns the record of what a kubeconfig holds under a name.
func recordOf(file, name string, config *api.Config) record {
	r := record{File: file, Name: name}
	if c := config.Clusters[name]; c != nil {
		r.Cluster = checksum([]byte(c.Server), c.CertificateAuthorityData)
	}
	if u := config.AuthInfos[name]; u != nil {
		r.User = checksum(u.ClientCertificateData, []byte(u.Token))
	}
	return r
}

// sameCluster reports whether two records are of the same cluster under the same name in the same file, whatever its user.
func (r record) sameCluster(other record) bool {
	return r.File == other.File && r.Name == other.Name && r.Cluster == other.Cluster && r.Cluster != ""
}

func checksum(parts ...[]byte) string {
	text, _ := json.Marshal(parts) // cannot fail for byte slices
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

type recordList []record

// put returns the list with a record added, in place of one of the same file and name.
func (l recordList) put(r record) recordList {
	l = append(slices.DeleteFunc(slices.Clone(l), func(old record) bool { return old.File == r.File && old.Name == r.Name }), r)
	return l[max(0, len(l)-maxRecords):]
}

func readRecords(dataDir string) (recordList, error) {
	data, err := os.ReadFile(filepath.Join(dataDir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var l recordList
	if json.Unmarshal(data, &l) != nil {
		return nil, nil // the file was cut short: what was added stays as it is
	}
	return l, nil
}

func (l recordList) write(dataDir string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dataDir, RecordFile), append(data, '\n'))
}

const (
	// lockTimeout bounds the wait for another program that changes the same kubeconfig.
	lockTimeout = 5 * time.Second
	lockPause   = 10 * time.Millisecond
)

// editFile edits a kubeconfig of the user under its lock. What edit does not touch stays as it is, comments and unknown fields too.
func editFile(file string, edit func(*document) error) error {
	unlock, err := lockFile(file)
	if err != nil {
		return err
	}
	defer unlock()
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d, err := parseDocument(data)
	if err != nil {
		return err
	}
	before, err := d.text()
	if err != nil {
		return err
	}
	if err := edit(d); err != nil {
		return err
	}
	after, err := d.text()
	if err != nil {
		return err
	}
	target, err := resolve(file)
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) {
		return makePrivate(target)
	}
	if d.isEmpty() && target == file {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// A file with YAML anchors may be invalid without the entry that defines one.
	if _, err := clientcmd.Load(after); err != nil {
		return fmt.Errorf("the file is written in a way that cannot be changed safely: %w", err)
	}
	return replaceFile(target, after)
}

// lockFile locks a kubeconfig as kubectl does: by making a file beside it.
func lockFile(file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	lock := file + ".lock"
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockPause) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			f.Close()
			return func() { os.Remove(lock) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s exists: another program changes the file, or was ended while it did; if none does, remove it", lock)
		}
	}
}

// maxLinks bounds the symbolic links on the way to a file.
const maxLinks = 16

// resolve follows symbolic links, also to a file that does not exist, so that the file and not the link is replaced. It follows a link only to what belongs to
// the link's owner: root, who adds a cluster to a user's kubeconfig, must not write elsewhere for the user.
func resolve(file string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(file)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return file, nil // not a link, or it does not exist
		}
		target, err := os.Readlink(file)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(file), target)
		}
		targetInfo, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) {
			targetInfo, err = os.Stat(filepath.Dir(target))
		}
		if err != nil {
			return "", err
		}
		if owner := uidOf(info); owner != uint32(os.Geteuid()) && owner != uidOf(targetInfo) {
			return "", fmt.Errorf("%s is a link of the user with uid %d to what belongs to another, %s", file, owner, target)
		}
		file = target
	}
	return "", fmt.Errorf("%s: too many links", file)
}

func uidOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return uint32(os.Geteuid())
}

// makePrivate takes all permissions on a kubeconfig from everybody but its owner: it holds keys.
func makePrivate(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(file, info.Mode().Perm()&^0o077)
}

// replaceFile replaces a file by a rename, so that readers see the old content or the new, and keeps its owner. Only the owner may read it.
func replaceFile(file string, data []byte) error {
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.part")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // fails after the rename
	if info, err := os.Stat(file); err == nil {
		if err := part.Chmod(info.Mode().Perm() &^ 0o077); err != nil {
			return err
		}
		keepOwner(part, info)
	}
	_, err = part.Write(data)
	if err := errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), file)
}
