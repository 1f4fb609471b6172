package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"skiff/internal/network/proxy/model"
)

// scheme is how chains are called. The longest name a chain may have is of 28 characters.
type scheme struct {
	prefix string
	// guarded says that endpoints are listeners of this process on this node: nobody reaches them but by way of a Service. Answers go by this node
	// anyway, so nothing is masqueraded.
	guarded bool
}

var (
	kube  = scheme{prefix: "KUBE-"}
	skiff = scheme{prefix: "SKIFF-", guarded: true}
)

// table is one of the two tables we write to.
type table uint8

const (
	nat table = iota
	filter
	tables
)

func (t table) String() string { return [tables]string{"nat", "filter"}[t] }

// shared is a chain that has rules of many Services.
type shared uint8

const (
	natServices shared = iota
	natNodePorts
	filterServices
	filterExternal
	filterNodePorts
	filterFirewall
	filterGuard
	sharedChains
)

func (s shared) table() table {
	if s <= natNodePorts {
		return nat
	}
	return filter
}

func (n scheme) shared(s shared) string {
	return n.prefix + [sharedChains]string{"SERVICES", "NODEPORTS", "SERVICES", "EXTERNAL-SERVICES", "NODEPORTS", "PROXY-FIREWALL", "PROXY-GUARD"}[s]
}

// The chains that are always the same.
func (n scheme) mark() string        { return n.prefix + "MARK-MASQ" }
func (n scheme) markOutside() string { return n.prefix + "MARK-OUTSIDE" }
func (n scheme) postrouting() string { return n.prefix + "POSTROUTING" }
func (n scheme) forward() string     { return n.prefix + "FORWARD" }

// The kinds of chains that belong to one Port.
const (
	kindService  = "SVC-"
	kindLocal    = "SVL-"
	kindExternal = "EXT-"
	kindFirewall = "FW-"
	kindEndpoint = "SEP-"
)

// hashLength is how much of a hash is in a chain's name.
const hashLength = 16

// chain is the name of a Port's chain; endpoint is empty but for kindEndpoint. The same names as kube-proxy's come out.
func (n scheme) chain(kind string, key model.Key, endpoint string) string {
	name := key.Namespace + "/" + key.Service
	if key.Port != "" {
		name += ":" + key.Port
	}
	sum := sha256.Sum256([]byte(name + key.Protocol.String() + endpoint))
	return n.prefix + kind + base32.StdEncoding.EncodeToString(sum[:])[:hashLength]
}

// owned reports whether a chain belongs to a Port, any Port, by its name.
func (n scheme) owned(chain string) bool {
	rest, ours := strings.CutPrefix(chain, n.prefix)
	if !ours {
		return false
	}
	for _, kind := range []string{kindService, kindLocal, kindExternal, kindFirewall, kindEndpoint} {
		if hash, is := strings.CutPrefix(rest, kind); is && len(hash) == hashLength {
			return strings.Trim(hash, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
		}
	}
	return false
}

// fixed reports whether a chain of a table is one of those that do not belong to one Port.
func (n scheme) fixed(t table, chain string) bool {
	for s := range sharedChains {
		if s.table() == t && n.shared(s) == chain {
			return true
		}
	}
	if t == nat {
		return chain == n.mark() || chain == n.markOutside() || chain == n.postrouting()
	}
	return chain == n.forward()
}

// maxComment is what the module comment takes, with the zero at its end.
const maxComment = 255

// comment is a match that is always true and says something to whoever lists rules. What could end the text does not get into it.
func comment(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' || r == '\'' {
			return '_'
		}
		return r
	}, text)
	if len(clean) > maxComment {
		clean = clean[:maxComment]
	}
	return `-m comment --comment "` + clean + `" `
}
