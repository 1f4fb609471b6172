package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// New returns the loop. Its keys are Secrets. Without something that makes tokens it does nothing.
func New(deps controller.Deps) controller.Loop {
	secrets, accounts := deps.Informers.Core().V1().Secrets(), deps.Informers.Core().V1().ServiceAccounts()
	l := &loop{secrets: secrets.Lister(), accounts: accounts.Lister(), authority: deps.Config.RootCA, token: deps.Config.LegacyToken}
	loop := controller.Loop{
		Name: "serviceaccount-token-controller", QueueName: "serviceaccount_tokens_service",
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Type: &corev1.Secret{}, Keys: keysOfSecret},
			{Informer: accounts.Informer(), Type: &corev1.ServiceAccount{}, Keys: l.keysOfAccount},
		},
		Reconcile: l.reconcile,
	}
	if l.token == nil {
		loop.Reconcile = func(controller.Key, time.Time) controller.Decision { return controller.Nothing }
	}
	return loop
}

type loop struct {
	secrets   corelisters.SecretLister
	accounts  corelisters.ServiceAccountLister
	authority []byte
	token     func(*corev1.ServiceAccount, *corev1.Secret) (string, error)
}

// accountOf returns the name of the account whose token a Secret asks for, and "" if it asks for none.
func accountOf(obj metav1.Object) string {
	if secret, ok := obj.(*corev1.Secret); ok && secret.Type == corev1.SecretTypeServiceAccountToken {
		return secret.Annotations[corev1.ServiceAccountNameKey]
	}
	return ""
}

func keysOfSecret(before, after metav1.Object) []controller.Key {
	obj := after
	if obj == nil {
		obj = before
	}
	if accountOf(obj) == "" {
		return nil
	}
	return []controller.Key{controller.KeyOf(obj)}
}

// keysOfAccount returns the Secrets for tokens of an account that is new, was deleted, or took the place of another.
func (l *loop) keysOfAccount(before, after metav1.Object) []controller.Key {
	if before != nil && after != nil && before.GetUID() == after.GetUID() {
		return nil
	}
	account := after
	if account == nil {
		account = before
	}
	all, err := l.secrets.Secrets(account.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil // listing from a cache does not fail
	}
	var keys []controller.Key
	for _, secret := range all {
		if accountOf(secret) == account.GetName() {
			keys = append(keys, controller.KeyOf(secret))
		}
	}
	return keys
}

func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	secret, err := l.secrets.Secrets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		all, err := l.accounts.ServiceAccounts(key.Namespace).List(labels.Everything())
		if err != nil {
			return controller.Decision{Err: err}
		}
		return dropReferences(key.Name, all)
	}
	if err != nil || accountOf(secret) == "" || secret.DeletionTimestamp != nil {
		return controller.Decision{Err: err}
	}
	account, err := l.accounts.ServiceAccounts(key.Namespace).Get(accountOf(secret))
	switch uid := secret.Annotations[corev1.ServiceAccountUIDKey]; {
	case apierrors.IsNotFound(err), err == nil && uid != "" && uid != string(account.UID):
		return deleteOrphan(secret)
	case err != nil:
		return controller.Decision{Err: err}
	}
	return l.fill(secret, account)
}

// dropReferences removes the name of a Secret that is gone from the accounts that have it.
func dropReferences(name string, all []*corev1.ServiceAccount) controller.Decision {
	is := func(ref corev1.ObjectReference) bool { return ref.Name == name }
	var d controller.Decision
	for _, account := range all {
		if slices.ContainsFunc(account.Secrets, is) {
			changed := account.DeepCopy()
			changed.Secrets = slices.DeleteFunc(changed.Secrets, is)
			d.Actions = append(d.Actions, controller.Update(changed))
		}
	}
	return d
}

// errAccountIsThere says that a Secret whose account was not observed has one.
var errAccountIsThere = errors.New("the service account is there: it was not observed yet")

// deleteOrphan deletes a Secret whose account is not observed, if the API has no such account either.
func deleteOrphan(secret *corev1.Secret) controller.Decision {
	name := accountOf(secret)
	check := controller.Call("check that ServiceAccount "+secret.Namespace+"/"+name+" is gone", func(ctx context.Context, c *client.Client) error {
		account, err := c.Kubernetes().CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			if uid := secret.Annotations[corev1.ServiceAccountUIDKey]; uid == "" || uid == string(account.UID) {
				err = errAccountIsThere
			}
		}
		return err
	})
	return controller.Decision{Actions: []controller.Action{check, controller.Delete(secret, metav1.DeleteOptions{})}, Then: func(err error) controller.Decision {
		if errors.Is(err, errAccountIsThere) {
			return controller.Nothing // the account's appearance queues its Secrets
		}
		return controller.Decision{Err: err}
	}}
}

// fill writes what a Secret lacks: the token, the namespace, the certificate authority, and the annotations that say whose token it is.
func (l *loop) fill(secret *corev1.Secret, account *corev1.ServiceAccount) controller.Decision {
	authorityMissing := len(l.authority) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], l.authority)
	namespaceMissing, tokenMissing := len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0, len(secret.Data[corev1.ServiceAccountTokenKey]) == 0
	if !authorityMissing && !namespaceMissing && !tokenMissing {
		return controller.Nothing
	}
	filled := secret.DeepCopy()
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	if authorityMissing {
		filled.Data[corev1.ServiceAccountRootCAKey] = l.authority
	}
	if namespaceMissing {
		filled.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if tokenMissing {
		token, err := l.token(account, secret)
		if err != nil {
			return controller.Decision{Err: fmt.Errorf("make a token of service account %s/%s: %w", account.Namespace, account.Name, err)}
		}
		filled.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	metav1.SetMetaDataAnnotation(&filled.ObjectMeta, corev1.ServiceAccountNameKey, account.Name)
	metav1.SetMetaDataAnnotation(&filled.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	return controller.Decision{Actions: []controller.Action{controller.Update(filled)}}
}
