package nonresource

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/response"
)

// tunnelPrefix is the prefix of the paths at which nodes open the tunnels through which they are reached: /skiff/v1/tunnels/NODE.
const tunnelPrefix = "/skiff/v1/tunnels/"

// allowsTunnel reports whether a request is that of a node for its own tunnel. This is not a role: a role cannot tell one node from another.
func (h *Handler) allowsTunnel(a *authz.Attributes) bool {
	return !a.Resource && h.Tunnel != nil && a.Verb == "get" && isTunnelOf(a.User, a.Path)
}

// isTunnelOf reports whether a user is a node and a path is that of its tunnel.
func isTunnelOf(user *authn.User, path string) bool {
	node, isNode := strings.CutPrefix(user.Username, "system:node:")
	return isNode && node != "" && slices.Contains(user.Groups, authn.SystemNodes) && path == tunnelPrefix+node
}

// serveTunnel hands the connection over to Tunnel. Only the node itself may open its tunnel, whatever others are authorized to do: they would get its
// traffic.
func (h *Handler) serveTunnel(w http.ResponseWriter, r *http.Request, user *authn.User) {
	if !isTunnelOf(user, r.URL.Path) {
		response.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{Resource: "tunnels"}, strings.TrimPrefix(r.URL.Path, tunnelPrefix), errNotNode))
		return
	}
	h.Tunnel(w, r, strings.TrimPrefix(r.URL.Path, tunnelPrefix))
}

var errNotNode = errors.New("only the node itself may open its tunnel")
