package cluster

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

// A cluster is added to the user's kubeconfig under its name: a cluster, a user and a context. What was added where is recorded in the data
// directory, so that the server can renew it with the administrator's certificate, and removing the cluster can remove it. Both touch
// only what is as it was added.

// mergedRecord is the file in the data directory that says where the cluster was added.
const mergedRecord = "merged-kubeconfigs.json"

// maxMerged bounds the files that are remembered; the oldest is forgotten.
const maxMerged = 16

// merged is one place the cluster was added to, and sums over the cluster and the user that were added.
type merged struct {
	File, Name, Cluster, User string
}

// MergeKubeconfig adds a cluster's context to the user's own kubeconfig, in the file kubectl would write it to, or brings it up to date. It
// becomes the current context if there was none. A context of that name that leads elsewhere is somebody else's, and an error.
func MergeKubeconfig(dataDir, name string) (file string, err error) {
	options := clientcmd.NewDefaultPathOptions()
	user, err := options.GetStartingConfig()
	if err != nil {
		return "", err
	}
	file = options.GetDefaultFilename()
	if there := user.Clusters[name]; there != nil && there.LocationOfOrigin != "" {
		file = there.LocationOfOrigin
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	admin, own, err := readAdmin(dataDir)
	if err == nil && own.Clusters[name] == nil {
		err = fmt.Errorf("%s is not of a cluster %q", KubeconfigPath(dataDir), name)
	}
	if err != nil {
		return file, err
	}
	records, err := readMerged(dataDir)
	if err != nil {
		return file, err
	}
	err = editUserConfig(file, func(d *document) error {
		user, err := options.GetStartingConfig() // again: the file is locked now
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(records, mergedInto(file, name, user).sameCluster) && leadsElsewhere(user, own, name) {
			return fmt.Errorf("%q is another cluster's there: remove it (kubectl config delete-context, delete-cluster, delete-user), or give this cluster another --name", name)
		}
		if user.CurrentContext == "" {
			d.set("current-context", name)
		}
		return d.addCluster(admin, name)
	})
	if err != nil {
		return file, fmt.Errorf("adding the cluster to %s: %w", file, err)
	}
	return file, records.put(mergedInto(file, name, own)).write(dataDir)
}

// leadsElsewhere reports whether a name stands for something else than the cluster. Who is at the same address is the same, or one there was
// before.
func leadsElsewhere(user, own *api.Config, name string) bool {
	if c := user.Contexts[name]; c != nil && (c.Cluster != name || c.AuthInfo != name) {
		return true
	}
	if there := user.Clusters[name]; there != nil {
		return there.Server != own.Clusters[name].Server
	}
	return user.AuthInfos[name] != nil
}

// IsCurrentContext reports whether kubectl uses a context if it is told nothing else.
func IsCurrentContext(name string) bool {
	user, err := clientcmd.NewDefaultPathOptions().GetStartingConfig()
	return err == nil && user.CurrentContext == name
}

// ForgetKubeconfig removes a cluster's context from the kubeconfigs it was added to. One of the same name that is another cluster's stays.
func ForgetKubeconfig(dataDir, name string) error {
	records, err := readMerged(dataDir)
	if err != nil {
		return err
	}
	_, own, err := readAdmin(dataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if own != nil && own.Clusters[name] != nil { // also where it was copied by hand
		for _, file := range clientcmd.NewDefaultPathOptions().GetLoadingPrecedence() {
			if file, err := filepath.Abs(file); err == nil {
				records = append(records, mergedInto(file, name, own))
			}
		}
	}
	for _, r := range records {
		_, err := editIf(r, r.sameCluster, func(d *document) error {
			d.removeCluster(r.Name)
			return nil
		})
		if err != nil {
			return fmt.Errorf("removing the cluster from %s: %w", r.File, err)
		}
	}
	err = os.Remove(filepath.Join(dataDir, mergedRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// refreshMerged brings the kubeconfigs that a cluster was added to up to date, where they still hold what was added.
func refreshMerged(dataDir string) (problems []error) {
	records, err := readMerged(dataDir)
	if err != nil {
		return []error{err}
	}
	if len(records) == 0 {
		return nil
	}
	admin, own, err := readAdmin(dataDir)
	if err != nil {
		return []error{err}
	}
	kept := slices.Clone(records)
	for i, r := range records {
		if own.Clusters[r.Name] == nil {
			continue // it was called so once
		}
		now := mergedInto(r.File, r.Name, own)
		ours := func(there merged) bool { return there == r || there == now } // the latter if the last attempt was cut short
		renewed, err := editIf(r, ours, func(d *document) error { return d.addCluster(admin, r.Name) })
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.File, err))
		} else if renewed {
			kept[i] = now
		}
	}
	if !slices.Equal(kept, records) {
		if err := kept.write(dataDir); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// editIf changes a kubeconfig that a cluster was added to, if what it holds now is still good for that, and reports whether it was.
func editIf(r merged, good func(there merged) bool, edit func(*document) error) (done bool, err error) {
	user, err := clientcmd.LoadFromFile(r.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !good(mergedInto(r.File, r.Name, user)) {
		return false, err
	}
	err = editUserConfig(r.File, func(d *document) error {
		user, err := d.config() // again: the file is locked now
		if done = err == nil && good(mergedInto(r.File, r.Name, user)); !done {
			return err
		}
		return edit(d)
	})
	return done, err
}

// readAdmin reads the administrator's kubeconfig, as text with its structure and as what it means.
func readAdmin(dataDir string) (*document, *api.Config, error) {
	data, err := os.ReadFile(KubeconfigPath(dataDir))
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

// mergedInto is what a kubeconfig in a file holds under a name.
func mergedInto(file, name string, config *api.Config) merged {
	m := merged{File: file, Name: name}
	if c := config.Clusters[name]; c != nil {
		m.Cluster = sum([]byte(c.Server), c.CertificateAuthorityData)
	}
	if u := config.AuthInfos[name]; u != nil {
		m.User = sum(u.ClientCertificateData, []byte(u.Token))
	}
	return m
}

// sameCluster reports whether another place holds the same cluster, whatever its user.
func (m merged) sameCluster(other merged) bool {
	return m.File == other.File && m.Name == other.Name && m.Cluster == other.Cluster && m.Cluster != ""
}

func sum(parts ...[]byte) string {
	text, _ := json.Marshal(parts) // of bytes alone it cannot fail
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

type mergedList []merged

func (l mergedList) put(m merged) mergedList {
	l = append(slices.DeleteFunc(slices.Clone(l), func(r merged) bool { return r.File == m.File && r.Name == m.Name }), m)
	return l[max(0, len(l)-maxMerged):]
}

func readMerged(dataDir string) (mergedList, error) {
	data, err := os.ReadFile(filepath.Join(dataDir, mergedRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var l mergedList
	if json.Unmarshal(data, &l) != nil {
		return nil, nil // cut short: what was added then stays as it is
	}
	return l, nil
}

func (l mergedList) write(dataDir string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dataDir, mergedRecord), append(data, '\n'))
}

const (
	// editTime bounds the wait for another program that changes the same kubeconfig.
	editTime  = 5 * time.Second
	editPause = 10 * time.Millisecond
)

// editUserConfig changes a kubeconfig of the user. What edit does not touch stays as it is, comments and unknown fields too.
func editUserConfig(file string, edit func(*document) error) error {
	unlock, err := lockUserConfig(file)
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
	if d.blank() && target == file {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// A file with anchors, say, may not survive the loss of an entry.
	if _, err := clientcmd.Load(after); err != nil {
		return fmt.Errorf("it is written in a way that cannot be changed safely: %w", err)
	}
	return replaceFile(target, after)
}

// lockUserConfig locks a kubeconfig as kubectl does: by making a file beside it.
func lockUserConfig(file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	lock := file + ".lock"
	for deadline := time.Now().Add(editTime); ; time.Sleep(editPause) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			f.Close()
			return func() { os.Remove(lock) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s is there: another program changes the file, or was ended while it did; if none does, remove it", lock)
		}
	}
}

// maxLinks bounds how many symbolic links lead to a file.
const maxLinks = 16

// resolve follows symbolic links, also to a file that does not exist: replacing a link would cut the user's arrangement. A link leads only
// to what belongs to its owner: root, who adds a cluster to a user's kubeconfig, does not write elsewhere for the user.
func resolve(file string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(file)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return file, nil // not a link, or nothing there
		}
		target, err := os.Readlink(file)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(file), target)
		}
		there, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) {
			there, err = os.Stat(filepath.Dir(target))
		}
		if err != nil {
			return "", err
		}
		if owner := uidOf(info); owner != uint32(os.Geteuid()) && owner != uidOf(there) {
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

// makePrivate takes from all but the owner what they may do with a kubeconfig: it holds keys.
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

// replaceFile puts a file in place of another, whole at every moment, with its owner. Only the owner may read it.
func replaceFile(file string, data []byte) error {
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.part")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // fails once it is in place
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
