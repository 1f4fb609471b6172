package custom

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/openapi/routes"
)

// The paths of custom resources differ only in names. Building them from routes takes ten times as long as the definitions of a usual schema.
// So they are built once for a resource with placeholders for names, and copied with the names of others.

// shape is what, beside its names, decides which paths a resource has and how they are described.
type shape struct {
	dialect                   dialect
	namespaced, status, scale bool
	article                   string // of the kind, in descriptions
}

// Placeholders, as they are in definitions, and as they are in operation IDs and tags. None is a part of another or of any other text.
const (
	groupToken, versionToken, pluralToken = "xgroupx.xexamplex", "v0xversionx", "xpluralsx"
	modelToken                            = "xexamplex.xgroupx." + versionToken + "."
	infixToken, tagToken                  = "XgroupxXexamplexV0xversionx", "xgroupxXexamplex_" + versionToken
	listToken                             = "XlistOfThemx"
)

// kindTokens are placeholders of kinds, by their articles in descriptions: "create a CronTab", "create an Owl", "create Endpoints".
var kindTokens = map[string]string{"a ": "Xkindx", "an ": "Axkindx", "": "Xkinds"}

// templates keeps what was built for a minute, in which many definitions may be described. After that nothing is in memory.
var templates struct {
	mu  sync.Mutex
	all map[shape]string // at most one for each of 48 shapes
}

const templateLife = time.Minute

func forgetTemplates() {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	templates.all = nil
}

// paths returns the paths of a resource as members of a JSON object.
func (r *Resource) paths(v dialect) (string, error) {
	if !r.usual() {
		return r.buildPaths(v)
	}
	article := strings.TrimSuffix(strings.TrimPrefix(routes.Describe("", r.GVK.Kind), " "), r.GVK.Kind)
	s := shape{dialect: v, namespaced: r.Namespaced, status: r.Status, scale: r.Scale, article: article}
	template, err := s.template()
	if err != nil {
		return "", err
	}
	infix, tag := routes.GroupNames(r.GVK.GroupVersion())
	return strings.NewReplacer(modelToken, string(modelOf(r.GVK.GroupVersion().WithKind(""))), infixToken, infix, tagToken, tag,
		groupToken, r.GVK.Group, versionToken, r.GVK.Version, pluralToken, r.Plural, listToken, r.ListKind, kindTokens[article], r.GVK.Kind,
	).Replace(template), nil
}

// usual reports whether operation IDs contain the kind as it is, and no name needs escapes in JSON.
func (r *Resource) usual() bool {
	for i, c := range r.GVK.Kind {
		if !(c >= 'A' && c <= 'Z' || i > 0 && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9')) {
			return false
		}
	}
	plain := func(c rune) bool {
		return c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for _, c := range r.GVK.Group + r.GVK.Version + r.Plural + r.ListKind {
		if !plain(c) {
			return false
		}
	}
	return true
}

// template returns the paths of a resource of the shape whose names are placeholders.
func (s shape) template() (string, error) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	if template, ok := templates.all[s]; ok {
		return template, nil
	}
	gvk := schema.GroupVersionKind{Group: groupToken, Version: versionToken, Kind: kindTokens[s.article]}
	r := &Resource{GVK: gvk, ListKind: listToken, Plural: pluralToken, Namespaced: s.namespaced, Status: s.status, Scale: s.scale}
	paths, err := r.buildPaths(s.dialect)
	if err != nil {
		return "", err
	}
	if templates.all == nil {
		templates.all = map[shape]string{}
		time.AfterFunc(templateLife, forgetTemplates)
	}
	templates.all[s] = paths
	return paths, nil
}
