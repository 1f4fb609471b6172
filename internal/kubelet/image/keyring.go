package image

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// Credentials are the user and password of a registry.
type Credentials struct {
	Username, Password string
	Secret             string // the secret they are from: namespace/name/uid
}

// entry is one entry of a docker configuration.
type entry struct {
	Username, Password, Auth string
}

// keyring has the credentials of pull secrets by registry host, or by host and path. Hosts may have wildcards.
type keyring map[string][]Credentials

// newKeyring reads pull secrets. Secrets of other types are ignored.
func newKeyring(secrets []*corev1.Secret) (keyring, error) {
	k := keyring{}
	for _, s := range secrets {
		var entries map[string]entry
		var err error
		switch s.Type {
		case corev1.SecretTypeDockerConfigJson:
			var config struct{ Auths map[string]entry }
			if data := s.Data[corev1.DockerConfigJsonKey]; len(data) > 0 {
				err = json.Unmarshal(data, &config)
			}
			entries = config.Auths
		case corev1.SecretTypeDockercfg:
			if data := s.Data[corev1.DockerConfigKey]; len(data) > 0 {
				err = json.Unmarshal(data, &entries)
			}
		}
		if err == nil {
			err = k.add(entries, fmt.Sprintf("%s/%s/%s", s.Namespace, s.Name, s.UID))
		}
		if err != nil {
			return nil, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return k, nil
}

func (k keyring) add(entries map[string]entry, secret string) error {
	for _, registry := range slices.Sorted(maps.Keys(entries)) {
		e := entries[registry]
		c := Credentials{Username: e.Username, Password: e.Password}
		if e.Auth != "" {
			var err error
			if c, err = decode(e.Auth); err != nil {
				return err
			}
		}
		c.Secret = secret
		if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
			registry = "https://" + registry
		}
		u, err := url.Parse(registry)
		if err != nil {
			continue // no image can have such a registry
		}
		path := u.Path
		if strings.HasPrefix(path, "/v2/") || strings.HasPrefix(path, "/v1/") { // the path of the registry's API, not a repository
			path = path[3:]
		}
		key := u.Host
		if path != "/" {
			key += path
		}
		k[key] = append(k[key], c)
	}
	return nil
}

// decode reads user:password in base64, with or without padding.
func decode(auth string) (Credentials, error) {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(auth, "="))
	if err != nil {
		return Credentials{}, fmt.Errorf("auth is not base64: %w", err)
	}
	user, password, ok := strings.Cut(strings.TrimRight(string(data), "\x00"), ":")
	if !ok {
		return Credentials{}, errors.New("unable to parse auth field, must be formatted as base64(username:password)")
	}
	return Credentials{Username: user, Password: strings.Trim(password, "\x00")}, nil
}

// lookup finds all credentials for a repository, those of the longest path first.
func (k keyring) lookup(repository string) (out []Credentials) {
	keys := slices.SortedFunc(maps.Keys(k), func(a, b string) int { return cmp.Compare(b, a) })
	for _, key := range keys {
		if matches(key, repository) {
			out = append(out, k[key]...)
		}
	}
	if host, _, _ := strings.Cut(repository, "/"); len(out) == 0 && host == "docker.io" {
		out = k["index.docker.io"] // what docker login writes
	}
	return out
}

// serverOf returns the registry that an image's credentials are for. With it, containerd sends them to no mirror: without it, to whichever host asks for
// credentials first.
func serverOf(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	host := reference.Domain(named)
	if host == "docker.io" {
		host = "registry-1.docker.io" // where containerd pulls its images from
	}
	return "https://" + host, nil
}

// matches reports whether a key of a docker configuration matches a repository.
func matches(key, repository string) bool {
	k, err := url.Parse("https://" + key)
	if err != nil {
		return false
	}
	r, err := url.Parse("https://" + repository)
	if err != nil {
		return false
	}
	keyParts, keyPort := split(k.Host)
	parts, port := split(r.Host)
	if keyPort != port || len(keyParts) != len(parts) || !strings.HasPrefix(r.Path, k.Path) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(keyParts[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func split(hostPort string) (parts []string, port string) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		host, port = hostPort, ""
	}
	return strings.Split(host, "."), port
}
