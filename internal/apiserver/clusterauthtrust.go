package apiserver

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn/clientcert"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/catalog"
)

// trustName is the name of the ConfigMap from which extension API servers, such as that of metrics, learn which clients this server authenticates.
const trustName = "extension-apiserver-authentication"

// trustEvery is how often the ConfigMap is reconciled: certificate authorities are renewed, and somebody may have deleted it.
const trustEvery = time.Minute

// publishAuthenticationTrust writes the ConfigMap extension-apiserver-authentication, and reconciles it each trustEvery until the server stops.
func (s *Server) publishAuthenticationTrust(ctx context.Context) {
	trust := s.identity.authentication.Trust
	if trust.Clients == nil && trust.FrontProxies == nil {
		return
	}
	write := func() {
		if err := s.writeAuthenticationTrust(ctx, trust); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("failed to publish how clients are authenticated", "configmap", metav1.NamespaceSystem+"/"+trustName, "error", err)
		}
	}
	write()
	s.background.Go(func() {
		ticker := time.NewTicker(trustEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				write()
			}
		}
	})
}

// writeAuthenticationTrust creates or updates the ConfigMap, if it differs from what it should be.
func (s *Server) writeAuthenticationTrust(ctx context.Context, trust authnconfig.Trust) error {
	configMaps := corev1.Resource("configmaps")
	current, _ := s.loopback.Get(configMaps, metav1.NamespaceSystem, trustName).(*corev1.ConfigMap)
	var before map[string]string
	if current != nil {
		before = current.Data
	}
	wanted := trustData(trust, before, time.Now())
	if current != nil && maps.Equal(before, wanted) {
		return nil
	}
	if current == nil {
		err := s.loopback.Create(ctx, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: trustName, Namespace: metav1.NamespaceSystem}, Data: wanted})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return s.loopback.Update(ctx, configMaps, "", metav1.NamespaceSystem, trustName, func(obj catalog.Object) error {
		m := obj.(*corev1.ConfigMap)
		m.Data = trustData(trust, m.Data, time.Now())
		return nil
	})
}

// trustData returns the data of the ConfigMap: what this server trusts, merged with what other servers of the cluster have written before. Values that
// cannot be parsed are replaced.
func trustData(trust authnconfig.Trust, before map[string]string, now time.Time) map[string]string {
	data := maps.Clone(before)
	if data == nil {
		data = map[string]string{}
	}
	for name, cas := range map[string]clientcert.CAs{"client-ca-file": trust.Clients, "requestheader-client-ca-file": trust.FrontProxies} {
		if cas == nil {
			continue
		}
		if text := mergeBundles(now, before[name], cas); text != "" {
			data[name] = text
		}
	}
	if trust.FrontProxies == nil {
		return data
	}
	for name, list := range map[string][]string{
		"requestheader-username-headers": trust.Headers.User, "requestheader-uid-headers": trust.Headers.UID, "requestheader-group-headers": trust.Headers.Group,
		"requestheader-extra-headers-prefix": trust.Headers.ExtraPrefix, "requestheader-allowed-names": trust.FrontProxyNames,
	} {
		known := []string{}
		if json.Unmarshal([]byte(before[name]), &known) != nil || known == nil {
			known = []string{}
		}
		for _, one := range list {
			if !slices.Contains(known, one) {
				known = append(known, one)
			}
		}
		if len(known) > 0 || name != "requestheader-uid-headers" { // servers of earlier versions do not know this key
			text, _ := json.Marshal(known) // strings can be marshaled
			data[name] = string(text)
		}
	}
	return data
}

// mergeBundles returns the certificates of before and cas that have not expired, in PEM, without duplicates.
func mergeBundles(now time.Time, before string, cas clientcert.CAs) string {
	var all []byte
	seen := map[string]bool{}
	add := func(b *clientcert.Bundle) {
		if b == nil {
			return
		}
		for _, c := range b.Certificates {
			if now.Before(c.NotAfter) && !seen[string(c.Raw)] {
				seen[string(c.Raw)] = true
				all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
			}
		}
	}
	if known, err := clientcert.NewBundle([]byte(before)); err == nil {
		add(known)
	}
	add(cas())
	return string(all)
}
