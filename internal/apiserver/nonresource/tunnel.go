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

// tunnelPrefix begins the paths at which nodes open the tunnels that they are reached through: /skiff/v1/tunnels/NODE.
const tunnelPrefix = "/skiff/v1/tunnels/"

// allowsTunnel says whether a request is a node's for its own tunnel. This is no role, as no role could tell one node from another.
func (h *Handler) allowsTunnel(a *authz.Attributes) bool {
	return !a.Resource && h.Tunnel != nil && a.Verb == "get" && ownTunnel(a.User, a.Path)
}

// ownTunnel says whether a path is that of the tunnel of the node that a user is.
func ownTunnel(user *authn.User, path string) bool {
	node, isNode := strings.CutPrefix(user.Username, "system:node:")
	return isNode && node != "" && slices.Contains(user.Groups, authn.SystemNodes) && path == tunnelPrefix+node
}

// serveTunnel hands the connection over. Nobody but the node may have it, whatever else they may: its traffic would be theirs.
func (h *Handler) serveTunnel(w http.ResponseWriter, r *http.Request, user *authn.User) {
	if !ownTunnel(user, r.URL.Path) {
		response.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{Resource: "tunnels"}, strings.TrimPrefix(r.URL.Path, tunnelPrefix), errNotNode))
		return
	}
	h.Tunnel(w, r, strings.TrimPrefix(r.URL.Path, tunnelPrefix))
}

var errNotNode = errors.New("only the node itself may open its tunnel")
