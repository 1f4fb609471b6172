package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// UsesKey is the key in a token's Secret that says how many machines may join with the token. Kubernetes does not know it: a token without it, such as
	// one that kubeadm created, may be used any number of times.
	UsesKey = "usage-skiff-uses"
	// singleUseKey is "true" in the Secrets of tokens that older versions created for one machine.
	singleUseKey = "usage-skiff-single"
	// usedByKey holds the uses of a token, one per line.
	usedByKey = "skiff-used-by"

	// MaxUses bounds the uses of a token with a limit, as its uses are kept in its Secret.
	MaxUses = 1000
	// JoinTime is how long a machine whose certificate was approved may take to become a node. Meanwhile its name is reserved for its key, and its token stays.
	JoinTime = 10 * time.Minute
)

// Use is a machine that joined with a token.
type Use struct {
	Key  string // fingerprint of the machine's public key
	Node string
	At   time.Time
}

// Uses returns how many machines may join with a token, and false if there is no limit. A limit that cannot be parsed is 0.
func Uses(secret *corev1.Secret) (limit int, limited bool) {
	if string(secret.Data[singleUseKey]) == "true" {
		return 1, true
	}
	text, limited := secret.Data[UsesKey]
	if !limited {
		return 0, false
	}
	limit, err := strconv.Atoi(string(text))
	if err != nil || limit < 0 {
		return 0, true
	}
	return min(limit, MaxUses), true
}

// UsedBy returns the machines that joined with a token, the first one first.
func UsedBy(secret *corev1.Secret) (uses []Use) {
	for line := range strings.Lines(string(secret.Data[usedByKey])) {
		var u Use
		var at int64
		if _, err := fmt.Sscan(line, &u.Key, &u.Node, &at); err == nil {
			u.At = time.Unix(at, 0)
			uses = append(uses, u)
		}
	}
	return uses
}

// WithUse returns a copy of a token's Secret with a use added. Updating it fails with a conflict if another use was added meanwhile.
func WithUse(secret *corev1.Secret, u Use) *corev1.Secret {
	secret = secret.DeepCopy()
	secret.Data[usedByKey] = fmt.Appendf(secret.Data[usedByKey], "%s %s %d\n", u.Key, u.Node, u.At.Unix())
	return secret
}
