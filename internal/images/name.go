package images

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"
)

// dockerHub is the registry of names without one.
const dockerHub = "docker.io"

// Name is the full name of an image: nginx is docker.io/library/nginx:latest.
type Name struct {
	Registry   string // docker.io, 127.0.0.1:5000
	Repository string // library/nginx
	Tag        string // latest; empty if there is a digest
	Digest     Digest
}

// String returns the full name.
func (n Name) String() string {
	base := n.Registry + "/" + n.Repository
	if n.Digest != "" {
		return base + "@" + string(n.Digest)
	}
	return base + ":" + n.Tag
}

// Short returns the name as people write it: without docker.io and library.
func (n Name) Short() string {
	s := strings.TrimPrefix(n.String(), dockerHub+"/")
	return strings.TrimPrefix(s, "library/")
}

// ParseName parses a name as users write it in a pod.
func ParseName(s string) (Name, error) {
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Name{}, fmt.Errorf("image name %q: %w", s, err)
	}
	n := Name{Registry: reference.Domain(named), Repository: reference.Path(named)}
	if d, ok := named.(reference.Digested); ok {
		n.Digest, err = ParseDigest(d.Digest().String())
		return n, err
	}
	n.Tag = "latest"
	if t, ok := named.(reference.Tagged); ok {
		n.Tag = t.Tag()
	}
	return n, nil
}

var (
	tagPattern        = regexp.MustCompile(`^[\w][\w.-]{0,127}$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	registryPattern   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)
)

// requested returns the name that a request is about: the path has the repository and the reference, ns the registry that this one mirrors.
// Without ns, a repository may begin with the name of a registry, as in 127.0.0.1:6500/registry.k8s.io/pause; else it is docker.io's.
func requested(ns, repository, ref string) (Name, error) {
	if len(repository) > 255 || !repositoryPattern.MatchString(repository) {
		return Name{}, fmt.Errorf("%q is not the name of a repository", repository)
	}
	n := Name{Registry: ns, Repository: repository}
	if ns == "" {
		n.Registry = dockerHub
		if first, rest, ok := strings.Cut(repository, "/"); ok && (strings.Contains(first, ".") || first == "localhost") {
			n.Registry, n.Repository = first, rest
		}
	}
	if len(n.Registry) > 255 || !registryPattern.MatchString(n.Registry) {
		return Name{}, fmt.Errorf("%q is not the name of a registry", n.Registry)
	}
	switch n.Registry {
	case "index.docker.io", "registry-1.docker.io":
		n.Registry = dockerHub
	}
	if n.Registry == dockerHub && !strings.Contains(n.Repository, "/") {
		n.Repository = "library/" + n.Repository
	}
	if ref == "" {
		return n, nil
	}
	if strings.Contains(ref, ":") {
		var err error
		n.Digest, err = ParseDigest(ref)
		return n, err
	}
	if !tagPattern.MatchString(ref) {
		return Name{}, fmt.Errorf("%q is not a tag", ref)
	}
	n.Tag = ref
	return n, nil
}
