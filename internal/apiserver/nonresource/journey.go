package nonresource

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/journey"
)

// allowsJourney reports whether a request is for a journey or sends spans, and its user may do that. Every authenticated user may ask for a journey,
// which shows only objects that the user may get; nodes, system components and service accounts of kube-system may send spans. This is not a role, so
// that reviews of access answer as upstream's do.
func (h *Handler) allowsJourney(a *authz.Attributes) bool {
	if a.Resource || h.Journey == nil {
		return false
	}
	switch {
	case a.Path == journey.PathJourney && a.Verb == "get":
		return slices.Contains(a.User.Groups, authn.SystemAuthenticated)
	case a.Path == journey.PathSpans && a.Verb == "post":
		return slices.Contains(spanSenders, a.User.Username) ||
			slices.ContainsFunc(a.User.Groups, func(g string) bool { return g == authn.SystemNodes || g == systemAccounts })
	}
	return false
}

// spanSenders are the users who may send spans, beside nodes and service accounts of kube-system.
var spanSenders = []string{"system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"}

const systemAccounts = "system:serviceaccounts:kube-system"

// serveSpans records spans that components in other processes send, each with the name of the user who sent it.
func (h *Handler) serveSpans(w *response.Writer, r *http.Request, user *authn.User) error {
	if r.Method != http.MethodPost {
		return response.ErrMethodNotAllowed
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "post", schema.GroupResource{}, "", "spans are sent as application/json", 0, true)
	}
	body, err := w.ReadBody(r.Context(), r.Body, -1, journey.MaxBatchSize)
	if err != nil {
		return err
	}
	if len(body) > journey.MaxBatchSize {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", journey.MaxBatchSize))
	}
	var batch journey.Batch
	if err := json.Unmarshal(body, &batch); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := batch.Check(); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	for _, span := range batch.Spans {
		span.Source = user.Username
		h.Journey.PutSpan(span)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// serveJourney answers with the journey of an object (?resource=deployments.apps&namespace=default&name=nginx; the resource may be spelled as for
// kubectl). Users who may get the object may read its journey; what it says about objects that the user may not get is redacted.
func (h *Handler) serveJourney(w http.ResponseWriter, r *http.Request, user *authn.User) error {
	if r.Method != http.MethodGet {
		return response.ErrMethodNotAllowed
	}
	query := r.URL.Query()
	end := h.findEndpoint(query.Get("resource"))
	if end == nil || end.Registry == nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the server has no resource %q", query.Get("resource")))
	}
	namespace, name := query.Get("namespace"), query.Get("name")
	switch {
	case name == "":
		return apierrors.NewBadRequest("name is missing")
	case !end.Info.Namespaced:
		namespace = ""
	case namespace == "":
		return apierrors.NewBadRequest("namespace is missing")
	}
	reader := journeyReader{handler: h, ctx: r.Context(), user: user, allowed: map[string]bool{}}
	if may, reason, err := reader.may("get", end.Info.GVR.GroupResource(), namespace, name); !may {
		return response.Forbidden(reader.attributes("get", end.Info.GVR.GroupResource(), namespace, name), reason, err)
	}
	about := h.Journey.Failures(func(f *journey.Failure) bool {
		return f.Object == name && f.Namespace == namespace && whole(f.Resource) == end.Traced
	})
	uid := ""
	it, err := end.Registry.GetUninitialized(r.Context(), namespace, name, "")
	if err == nil {
		uid = it.UID
		about = slices.DeleteFunc(about, func(f journey.Failure) bool {
			return f.Verb == "create" && f.Resource == end.Traced && f.Verdict != journey.FailedOpen
		})
	} else if !apierrors.IsNotFound(err) {
		return err
	} else if uid = h.Journey.Last(end.Traced, namespace, name); uid == "" && len(about) == 0 {
		return err
	}
	tree := h.Journey.Refused(about)
	if uid != "" {
		tree = h.Journey.Tree(uid)
		for _, f := range h.Journey.Failures(func(f *journey.Failure) bool { return f.BecauseOf(uid) }) {
			if reader.maySee(whole(f.Resource), f.Namespace, f.Object) {
				about = append(about, f)
			}
		}
		tree.Failures = about
	}
	tree.Resource, tree.Namespace, tree.Name = end.Traced, namespace, name
	if err == nil && it.Uninitialized {
		tree.Pending = codec.InitializersOf(it).Names()
		if meta, err := codec.Metadata(it.Raw()); err == nil {
			tree.Created = meta.CreationTimestamp.Time
		}
	}
	for _, root := range tree.Roots {
		root.Walk(func(n *journey.Node, _ int) { reader.redact(n) })
	}
	body, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return nil
}

// whole returns a resource without its subresource.
func whole(resource string) string {
	resource, _, _ = strings.Cut(resource, "/")
	return resource
}

// findEndpoint returns the endpoint of a resource by its plural, singular, kind or short name, with or without its group; nil if there is none. If
// several match, the first in discovery wins.
func (h *Handler) findEndpoint(name string) *verbs.Endpoint {
	name, group, grouped := strings.Cut(strings.ToLower(name), ".")
	served := h.API.Served()
	if i := slices.IndexFunc(served.Infos, func(info *catalog.Info) bool {
		called := name == info.GVR.Resource || name == info.Singular || name == strings.ToLower(info.GVK.Kind) || slices.Contains(info.Short, name)
		return called && (!grouped || group == info.GVR.Group) && !info.Virtual
	}); i >= 0 {
		return served.Endpoints[served.Infos[i].GVR]
	}
	return nil
}

// journeyReader decides what the user who reads a journey may see.
type journeyReader struct {
	handler *Handler
	ctx     context.Context
	user    *authn.User
	allowed map[string]bool
}

func (j *journeyReader) attributes(verb string, resource schema.GroupResource, namespace, name string) *authz.Attributes {
	return &authz.Attributes{User: j.user, Verb: verb, Resource: true, Group: resource.Group, Version: "*", Plural: resource.Resource, Namespace: namespace, Name: name}
}

// may asks the authorizer whether the user may do something with an object.
func (j *journeyReader) may(verb string, resource schema.GroupResource, namespace, name string) (bool, string, error) {
	decision, reason, err := j.handler.API.Authorizer.Authorize(j.ctx, j.attributes(verb, resource, namespace, name))
	return decision == authz.Allow, reason, err
}

// maySee reports whether the user may get an object. It asks the authorizer once for each object.
func (j *journeyReader) maySee(resource, namespace, name string) bool {
	key := resource + "/" + namespace + "/" + name
	if seen, ok := j.allowed[key]; ok {
		return seen
	}
	seen, _, _ := j.may("get", schema.ParseGroupResource(resource), namespace, name)
	j.allowed[key] = seen
	return seen
}

// redact removes from a node of a journey what the user may not get.
func (j *journeyReader) redact(n *journey.Node) {
	if n.Kind == journey.KindStage {
		return
	}
	if resource := whole(n.Resource); resource == "" || !j.maySee(resource, n.Namespace, n.Name) {
		n.Name, n.Namespace, n.UID, n.User, n.Error, n.Attributes, n.Causes, n.Writes = "", "", "", "", "", nil, nil, nil
		return
	}
	n.Attributes = slices.DeleteFunc(n.Attributes, func(a journey.Attribute) bool {
		node, about := strings.CutPrefix(a.Key, journey.AboutNode)
		return about && !j.maySee("nodes", "", node)
	})
}
