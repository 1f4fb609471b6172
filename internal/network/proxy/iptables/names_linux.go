package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"skiff/internal/network/proxy/model"
)

// scheme is how chains are named. A chain's name has at most 28 characters.
type scheme struct {
	prefix string
	// redirect says that endpoints are listeners of this process, which may be reached only through a Service. Answers go through this node anyway,
	// so nothing is masqueraded.
	redirect bool
}

var (
	kube  = scheme{prefix: "KUBE-"}
	skiff = scheme{prefix: "SKIFF-", redirect: true}
)

// table is one of the two tables that the mode writes to.
type table uint8

const (
	nat table = iota
	filter
	tables
)

func (t table) String() string { return [tables]string{"nat", "filter"}[t] }

// shared is a chain with rules of many Services.
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

// The names of the chains that do not depend on Services.
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

// hashLength is the number of characters of the hash in a chain's name.
const hashLength = 16

// chain returns the name of a Port's chain; endpoint is empty except for kindEndpoint. With the prefix KUBE- the names are kube-proxy's.
func (n scheme) chain(kind string, key model.Key, endpoint string) string {
	name := key.Namespace + "/" + key.Service
	if key.Port != "" {
		name += ":" + key.Port
	}
	sum := sha256.Sum256([]byte(name + key.Protocol.String() + endpoint))
	return n.prefix + kind + base32.StdEncoding.EncodeToString(sum[:])[:hashLength]
}

// isPortChain reports whether a chain's name is that of a chain of some Port.
func (n scheme) isPortChain(chain string) bool {
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

// isFixedChain reports whether a chain of a table is one of the mode's that do not belong to one Port.
func (n scheme) isFixedChain(t table, chain string) bool {
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

// maxComment is the longest text that the module comment accepts.
const maxComment = 255

// comment returns a match that is always true and shows a text when rules are listed. Characters that could end the text are replaced.
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
