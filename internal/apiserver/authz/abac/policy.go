package abac

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/authn"
)

const (
	group    = "abac.authorization.kubernetes.io"
	kind     = "Policy"
	wildcard = "*"
	// maxFile bounds the size of a policy file. A line has at most 64 KiB.
	maxFile = 16 << 20
	// maxWarnings bounds the log lines about unknown fields of one file.
	maxWarnings = 10
)

var (
	v1beta1 = schema.GroupVersion{Group: group, Version: "v1beta1"}
	v0      = schema.GroupVersion{Group: group, Version: "v0"}
)

// spec has the fields of a policy. An empty user or group matches nobody by itself; the other fields match only what is equal to them, or everything if they
// are "*".
type spec struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"` // allows get, list and watch only
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"` // "/x/*" matches all paths below /x/
}

// policyV1beta1 is the form of a line with apiVersion and kind.
type policyV1beta1 struct {
	metav1.TypeMeta `json:",inline"`
	Spec            spec `json:"spec"`
}

// policyV0 is the form of a line without them.
type policyV0 struct {
	metav1.TypeMeta `json:",inline"`
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
}

// Read reads a policy file.
func Read(path string, log *slog.Logger) (*Authorizer, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parse(file, path, log)
}

// parse reads policies; the path is for errors and the log.
func parse(from io.Reader, path string, log *slog.Logger) (*Authorizer, error) {
	bounded := &io.LimitedReader{R: from, N: maxFile + 1}
	a, err := parseLines(bounded, path, log)
	if bounded.N == 0 {
		return nil, fmt.Errorf("error reading policy file %s: it is larger than %d bytes", path, maxFile)
	}
	return a, err
}

func parseLines(from io.Reader, path string, log *slog.Logger) (*Authorizer, error) {
	lines := bufio.NewScanner(from)
	a := &Authorizer{}
	older, warnings := 0, 0
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		policy, unversioned, unknown, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", path, number, lines.Bytes(), err)
		}
		if len(unknown) > 0 && warnings < maxWarnings {
			warnings++
			log.Warn("policy file has fields that are ignored", "file", path, "line", number, "err", unknown[0])
		}
		if unversioned {
			older++
		}
		a.policies = append(a.policies, policy)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("error reading policy file %s: %w", path, err)
	}
	if older > 0 {
		log.Warn("policy file has lines without apiVersion and kind: they match every API group", "file", path, "lines", older)
	}
	return a, nil
}

// parseLine returns the policy of a line, whether it is of the older form, and what is wrong with fields that are ignored.
func parseLine(line []byte) (policy spec, unversioned bool, unknown []error, err error) {
	if line[0] != '{' { // upstream takes YAML, too, as long as it is one line
		if line, err = yaml.YAMLToJSON(line); err != nil {
			return spec{}, false, nil, err
		}
	}
	var kinds metav1.TypeMeta
	if err := json.Unmarshal(line, &kinds); err != nil {
		return spec{}, false, nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	version, err := schema.ParseGroupVersion(kinds.APIVersion)
	switch {
	case err != nil:
		return spec{}, false, nil, err
	case version == v1beta1 && kinds.Kind == kind:
		var p policyV1beta1
		if unknown, err = kjson.UnmarshalStrict(line, &p); err != nil {
			return spec{}, false, nil, err
		}
		return p.Spec.everybody(), false, unknown, nil
	case (version.Empty() || version == v0) && (kinds.Kind == "" || kinds.Kind == kind):
		var p policyV0
		if unknown, err = kjson.UnmarshalStrict(line, &p); err != nil {
			return spec{}, false, nil, err
		}
		return p.convert(), true, unknown, nil
	case kinds.Kind == "":
		return spec{}, false, nil, fmt.Errorf("Object 'Kind' is missing in '%s'", line)
	}
	return spec{}, false, nil, fmt.Errorf("no kind %q is registered for version %q", kinds.Kind, kinds.APIVersion)
}

// everybody returns the policy with any user or group replaced by the group of all who have authenticated: nothing is for anonymous users unless they are named.
func (s spec) everybody() spec {
	if s.User == wildcard || s.Group == wildcard {
		s.User, s.Group = "", authn.SystemAuthenticated
	}
	return s
}

// convert returns the policy as one of v1beta1. What a policy of the older form does not say is not restricted.
func (p *policyV0) convert() spec {
	s := spec{User: p.User, Group: p.Group, Readonly: p.Readonly, Namespace: p.Namespace, Resource: p.Resource, APIGroup: wildcard}
	if s.User == "" && s.Group == "" {
		s.Group = authn.SystemAuthenticated
	}
	if s.Namespace == "" && s.Resource == "" {
		s.NonResourcePath = wildcard
	}
	if s.Namespace == "" {
		s.Namespace = wildcard
	}
	if s.Resource == "" {
		s.Resource = wildcard
	}
	return s.everybody()
}

// matchesPath reports whether a policy's path matches that of a request.
func (s *spec) matchesPath(path string) bool {
	pattern := s.NonResourcePath
	return pattern == wildcard || pattern == path || strings.HasSuffix(pattern, wildcard) && strings.HasPrefix(path, strings.TrimRight(pattern, wildcard))
}
