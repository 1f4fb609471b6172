package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skiff/internal/controller/bootstrap"
)

const (
	secretPrefix      = "bootstrap-token-"
	defaultGroup      = "system:bootstrappers:kubeadm:default-node-token"
	keyID             = "token-id"
	keySecret         = "token-secret"
	keyExpiration     = "expiration"
	keyDescription    = "description"
	keyGroups         = "auth-extra-groups"
	keyAuthentication = "usage-bootstrap-authentication"
	keySigning        = "usage-bootstrap-signing"
)

// TokenInfo is a bootstrap token as the cluster has it.
type TokenInfo struct {
	ID, Secret  string
	Expires     time.Time // zero if never
	Uses        int       // how many machines may join with it; 0 if any number
	Used        int       // how many machines have joined with it
	Description string
	Usages      []string
}

// CreateToken creates the Secret of a token. A life of 0 is for ever, and uses of 0 are any number of machines.
func CreateToken(ctx context.Context, secrets corev1client.SecretsGetter, t Token, life time.Duration, uses int, description string) error {
	switch {
	case life < 0:
		return errors.New("the lifetime of a token (--ttl) cannot be negative")
	case uses < 0 || uses > bootstrap.MaxUses:
		return fmt.Errorf("a token is for 1 to %d machines, or for any number if that is 0", bootstrap.MaxUses)
	}
	data := map[string]string{keyID: t.ID, keySecret: t.Secret, keyAuthentication: "true", keySigning: "true", keyGroups: defaultGroup}
	if life > 0 {
		data[keyExpiration] = time.Now().Add(life).UTC().Format(time.RFC3339)
	}
	if uses > 0 {
		data[bootstrap.UsesKey] = strconv.Itoa(uses)
	}
	if description != "" {
		data[keyDescription] = description
	}
	_, err := secrets.Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretPrefix + t.ID}, Type: corev1.SecretTypeBootstrapToken, StringData: data,
	}, metav1.CreateOptions{})
	return err
}

// maxTokens bounds how many tokens are listed.
const maxTokens = 1000

// ListTokens returns the tokens of a cluster, those that expire first before the others.
func ListTokens(ctx context.Context, secrets corev1client.SecretsGetter) ([]TokenInfo, error) {
	list, err := secrets.Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken), Limit: maxTokens})
	if err != nil {
		return nil, err
	}
	var out []TokenInfo
	for _, s := range list.Items {
		info := TokenInfo{ID: string(s.Data[keyID]), Secret: string(s.Data[keySecret]), Used: len(bootstrap.UsedBy(&s)), Description: string(s.Data[keyDescription])}
		info.Uses, _ = bootstrap.Uses(&s)
		info.Expires, _ = time.Parse(time.RFC3339, string(s.Data[keyExpiration])) // zero if there is none
		for usage, key := range map[string]string{"authentication": keyAuthentication, "signing": keySigning} {
			if string(s.Data[key]) == "true" {
				info.Usages = append(info.Usages, usage)
			}
		}
		slices.Sort(info.Usages)
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b TokenInfo) int {
		if a.Expires.IsZero() != b.Expires.IsZero() {
			if a.Expires.IsZero() {
				return 1
			}
			return -1
		}
		if order := a.Expires.Compare(b.Expires); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// DeleteToken deletes the Secret of a token, which is given whole or by its id.
func DeleteToken(ctx context.Context, secrets corev1client.SecretsGetter, name string) (id string, err error) {
	id = name
	if _, bearer, ok := strings.Cut(id, "::"); ok {
		id = bearer
	}
	id, _, _ = strings.Cut(id, ".")
	if !bootstrapTokenForm.MatchString(id + ".0123456789abcdef") {
		return "", fmt.Errorf("%q is neither a token nor the id of one, which is like abcdef", name)
	}
	err = secrets.Secrets(metav1.NamespaceSystem).Delete(ctx, secretPrefix+id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no token %s; \"skiff token list\" shows those that there are", id)
	}
	return id, err
}
