package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var anyID = regexp.MustCompile(`"jti":"[0-9a-f-]{36}"`)

func TestClaimsAreUpstreams(t *testing.T) {
	const now = 1785585600
	times := func(expires int) string {
		return fmt.Sprintf(`"exp":%d,"iat":%d,"iss":"https://issuer.example",`, now+expires, now)
	}
	account := `"serviceaccount":{"name":"robot","uid":"account-uid"}`
	end := fmt.Sprintf(`},"nbf":%d,"sub":"system:serviceaccount:web:robot"}`, now)
	for name, c := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		want string
	}{
		"by default": {authenticationv1.TokenRequestSpec{},
			`{"aud":["https://issuer.example","api"],` + times(3600) + `"jti":"","kubernetes.io":{"namespace":"web",` + account + end},
		"for others": {lasting(authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}, 600),
			`{"aud":["vault"],` + times(600) + `"jti":"","kubernetes.io":{"namespace":"web",` + account + end},
		"bound to a Pod": {boundTo("Pod", "p"),
			`{"aud":["https://issuer.example","api"],` + times(3600) + `"jti":"","kubernetes.io":{"namespace":"web","node":{"name":"n1","uid":"node-uid"},"pod":{"name":"p","uid":"pod-uid"},` + account + end},
		"bound to a Secret": {boundTo("Secret", "s"),
			`{"aud":["https://issuer.example","api"],` + times(3600) + `"jti":"","kubernetes.io":{"namespace":"web","secret":{"name":"s","uid":"secret-uid"},` + account + end},
		"bound to a Node": {boundTo("Node", "n1"),
			`{"aud":["https://issuer.example","api"],` + times(3600) + `"jti":"","kubernetes.io":{"namespace":"web","node":{"name":"n1","uid":"node-uid"},` + account + end},
		"extended": {lasting(boundTo("Pod", "p"), 3607),
			`{"aud":["https://issuer.example","api"],` + times(31536000) + `"jti":"","kubernetes.io":{"namespace":"web","node":{"name":"n1","uid":"node-uid"},"pod":{"name":"p","uid":"pod-uid"},` + account + fmt.Sprintf(`,"warnafter":%d`, now+3607) + end},
	} {
		answer := newFixture(t).request(t, c.spec)
		if got := anyID.ReplaceAllString(payload(t, answer.Status.Token), `"jti":""`); got != c.want {
			t.Errorf("%s: got\n%s, want\n%s", name, got, c.want)
		}
	}
	want := `{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"web","kubernetes.io/serviceaccount/secret.name":"s",` +
		`"kubernetes.io/serviceaccount/service-account.name":"robot","kubernetes.io/serviceaccount/service-account.uid":"account-uid","sub":"system:serviceaccount:web:robot"}`
	if got := payload(t, newFixture(t).legacyToken(t)); got != want {
		t.Errorf("legacy: got\n%s, want\n%s", got, want)
	}
}

func TestAnswerIsComplete(t *testing.T) {
	w := newFixture(t)
	request := &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "mine"}}
	var admitted *authenticationv1.TokenRequest
	answer, err := w.Request(context.Background(), "web", "robot", request, func(r *authenticationv1.TokenRequest) error {
		admitted = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Name != "robot" || answer.Namespace != "web" || answer.UID != "account-uid" || !answer.CreationTimestamp.Time.Equal(start) ||
		*answer.Spec.ExpirationSeconds != 3600 || !answer.Status.ExpirationTimestamp.Time.Equal(start.Add(time.Hour)) || len(answer.Spec.Audiences) != 2 {
		t.Errorf("got %+v", answer)
	}
	if admitted == nil || admitted.Name != "robot" || admitted.Status.Token != "" || *admitted.Spec.ExpirationSeconds != 3600 {
		t.Errorf("admission saw %+v", admitted)
	}
	if request.Name != "" || request.Status.Token != "mine" {
		t.Errorf("the request itself was changed: %+v", request)
	}
	user, good, err := w.AuthenticateToken(context.Background(), answer.Status.Token, []string{"api", "vault"})
	if err != nil || len(good) != 1 || good[0] != "api" {
		t.Errorf("got %v, %v, %v", user, good, err)
	}
	if id := w.notes.annotations["authentication.kubernetes.io/issued-credential-id"]; id == "" || id != user.Extra["authentication.kubernetes.io/credential-id"][0] {
		t.Errorf("annotated %q", id)
	}
}

func TestLifetime(t *testing.T) {
	for name, c := range map[string]struct {
		spec     authenticationv1.TokenRequestSpec
		max      time.Duration
		expires  time.Duration // in the response
		lifetime time.Duration // of the token
		warned   bool
		noExtend bool
	}{
		"as requested":                  {spec: lasting(boundTo("Pod", "p"), 7200), expires: 2 * time.Hour, lifetime: 2 * time.Hour},
		"no longer than allowed":        {spec: lasting(boundTo("Pod", "p"), 7200), max: time.Hour, expires: time.Hour, lifetime: time.Hour, warned: true},
		"extended":                      {spec: lasting(boundTo("Pod", "p"), 3607), expires: 3607 * time.Second, lifetime: 365 * 24 * time.Hour},
		"extended whatever is allowed":  {spec: lasting(boundTo("Pod", "p"), 3607), max: 2 * time.Hour, expires: 3607 * time.Second, lifetime: 365 * 24 * time.Hour},
		"shortened and so not extended": {spec: lasting(boundTo("Pod", "p"), 3607), max: time.Hour, expires: time.Hour, lifetime: time.Hour, warned: true},
		"not extended if disabled":      {spec: lasting(boundTo("Pod", "p"), 3607), expires: 3607 * time.Second, lifetime: 3607 * time.Second, noExtend: true},
		"not extended without a Pod":    {spec: lasting(boundTo("Secret", "s"), 3607), expires: 3607 * time.Second, lifetime: 3607 * time.Second},
		"not extended for other audiences": {spec: func() authenticationv1.TokenRequestSpec {
			s := lasting(boundTo("Pod", "p"), 3607)
			s.Audiences = []string{"api", "vault"}
			return s
		}(), expires: 3607 * time.Second, lifetime: 3607 * time.Second},
	} {
		w := newFixture(t)
		w.MaxExpiration, w.ExtendExpiration = c.max, !c.noExtend
		answer := w.request(t, c.spec)
		if got := answer.Status.ExpirationTimestamp.Sub(start); got != c.expires || time.Duration(*answer.Spec.ExpirationSeconds)*time.Second != c.expires {
			t.Errorf("%s: expires in %v", name, got)
		}
		read, err := parseClaims([]byte(payload(t, answer.Status.Token)))
		if err != nil {
			t.Fatal(err)
		}
		if got := read.Expiry.time().Sub(start); got != c.lifetime {
			t.Errorf("%s: lifetime %v", name, got)
		}
		if (len(w.notes.warnings) == 1) != c.warned || c.warned && !strings.Contains(w.notes.warnings[0], "seconds shortened to 3600 seconds") {
			t.Errorf("%s: warned %q", name, w.notes.warnings)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	type request = authenticationv1.TokenRequest
	spec := func(s authenticationv1.TokenRequestSpec) request { return request{Spec: s} }
	bound := func(apiVersion, kind, name, uid string) request {
		r := spec(boundTo(kind, name))
		r.Spec.BoundObjectRef.APIVersion, r.Spec.BoundObjectRef.UID = apiVersion, "x"
		if uid == "" {
			r.Spec.BoundObjectRef.UID = ""
		}
		return r
	}
	attest := func(kind string, attestations map[string]authenticationv1.AttestationValue, audiences ...string) request {
		r := spec(authenticationv1.TokenRequestSpec{Attestations: attestations, Audiences: audiences})
		if kind != "" {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "admissionregistration.k8s.io/v1", Kind: kind, Name: "hook"}
		}
		return r
	}
	one := map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {"apps"}}
	for name, c := range map[string]struct {
		account string
		request request
		admit   error
		fail    error
		reason  func(error) bool
		err     string
	}{
		"no such account":    {account: "nobody", reason: apierrors.IsNotFound, err: `serviceaccounts "nobody" not found`},
		"another name":       {request: request{ObjectMeta: metav1.ObjectMeta{Name: "anna"}}, reason: apierrors.IsInvalid, err: `TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "anna": must match the service account name if specified`},
		"another namespace":  {request: request{ObjectMeta: metav1.ObjectMeta{Namespace: "db"}}, reason: apierrors.IsInvalid, err: "must match the service account namespace if specified"},
		"another UID":        {request: request{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, reason: apierrors.IsConflict, err: "the UID in the token request (x) does not match the UID of the service account (account-uid)"},
		"too short":          {request: spec(lasting(authenticationv1.TokenRequestSpec{}, 599)), reason: apierrors.IsInvalid, err: "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		"too long":           {request: spec(lasting(authenticationv1.TokenRequestSpec{}, 1<<32+1)), reason: apierrors.IsInvalid, err: "may not specify a duration larger than 2^32 seconds"},
		"refused":            {admit: errors.New("not admitted"), reason: func(error) bool { return true }, err: "not admitted"},
		"no such Pod":        {request: bound("v1", "Pod", "q", ""), reason: apierrors.IsNotFound, err: `pods "q" not found`},
		"another Pod":        {request: bound("v1", "Pod", "p", "x"), reason: apierrors.IsConflict, err: "the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated"},
		"another's Pod":      {request: bound("v1", "Pod", "other", ""), reason: apierrors.IsBadRequest, err: `cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.`},
		"no such Secret":     {request: bound("v1", "Secret", "q", ""), reason: apierrors.IsNotFound, err: `secrets "q" not found`},
		"no such Node":       {request: bound("v1", "Node", "q", ""), reason: apierrors.IsNotFound, err: `nodes "q" not found`},
		"another kind":       {request: bound("v1", "ConfigMap", "c", ""), reason: apierrors.IsBadRequest, err: "cannot bind token to object of type /v1, Kind=ConfigMap"},
		"another group":      {request: bound("apps/v1", "Pod", "p", ""), reason: apierrors.IsBadRequest, err: "cannot bind token to object of type apps/v1, Kind=Pod"},
		"attested for a Pod": {request: attest("", one), reason: apierrors.IsInvalid, err: "attestations may only be specified with a webhook bound object reference"},
		"webhook": {request: attest("ValidatingWebhookConfiguration", one, "https://hook"), reason: apierrors.IsBadRequest,
			err: "cannot bind token to object of type admissionregistration.k8s.io/v1, Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)"},
		"webhook of many":         {request: attest("MutatingWebhookConfiguration", one, "a", "b"), reason: apierrors.IsInvalid, err: "must be length 1 when bound to a webhook config"},
		"webhook, nothing to say": {request: attest("MutatingWebhookConfiguration", nil, "a"), reason: apierrors.IsInvalid, err: "webhook bound requests require exactly one admissionReviewAPIGroups attestation"},
		"webhook, odd key":        {request: attest("MutatingWebhookConfiguration", map[string]authenticationv1.AttestationValue{"k": {"v"}}, "a"), reason: apierrors.IsInvalid, err: `spec.attestations[k]: Unsupported value: "k"`},
		"webhook, two groups":     {request: attest("MutatingWebhookConfiguration", map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {"a", "b"}}, "a"), reason: apierrors.IsInvalid, err: "must specify a single value"},
		"webhook, empty group":    {request: attest("MutatingWebhookConfiguration", map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {""}}, "a"), reason: apierrors.IsInvalid, err: "may not be an empty string"},
		"webhook, odd group":      {request: attest("MutatingWebhookConfiguration", map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {"A"}}, "a"), reason: apierrors.IsInvalid, err: "must specify a valid API Group"},
		"store broken":            {fail: errBroken, reason: func(err error) bool { return errors.Is(err, errBroken) }, err: "the store is broken"},
	} {
		w := newFixture(t)
		w.failing = c.fail
		w.Put(corev1.Resource("pods"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "other"}, Spec: corev1.PodSpec{ServiceAccountName: "another"}})
		if c.account == "" {
			c.account = "robot"
		}
		answer, err := w.Request(context.Background(), "web", c.account, &c.request, func(*request) error { return c.admit })
		if answer != nil || err == nil || !c.reason(err) || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, %v", name, answer, err)
		}
	}
}

func TestNodeOfAPod(t *testing.T) {
	w := newFixture(t)
	w.Remove(corev1.Resource("nodes"), "", "n1")
	if got := payload(t, w.request(t, boundTo("Pod", "p")).Status.Token); !strings.Contains(got, `"node":{"name":"n1"},"pod"`) {
		t.Errorf("a node that does not exist is named without UID: %s", got)
	}
	w.Put(corev1.Resource("pods"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "robot"}})
	if got := payload(t, w.request(t, boundTo("Pod", "p")).Status.Token); strings.Contains(got, `"node"`) {
		t.Errorf("a Pod that was not assigned has no node: %s", got)
	}
}

func TestCheckMaxExpiration(t *testing.T) {
	for limit, good := range map[time.Duration]bool{0: true, time.Hour: true, time.Hour - 1: false, 1 << 32 * time.Second: true, 1<<32*time.Second + 1: false, -time.Hour: false} {
		if err := CheckMaxExpiration(limit); (err == nil) != good {
			t.Errorf("%v: got %v", limit, err)
		}
	}
}
