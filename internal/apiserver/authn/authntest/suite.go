package authntest

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"skiff/internal/apiserver/authn"
)

// Hazard is a way in which a credential can be bad.
type Hazard string

// The hazards that every authenticator must refuse, or be exempt from for a stated reason.
const (
	WrongKey      Hazard = "wrong CA or key"
	Expired       Hazard = "expired"
	NotYetValid   Hazard = "not yet valid"
	WrongAudience Hazard = "wrong audience"
	Tampered      Hazard = "tampered"
	Oversized     Hazard = "oversized"
	Empty         Hazard = "empty"
	Revoked       Hazard = "revoked"
)

var hazards = []Hazard{WrongKey, Expired, NotYetValid, WrongAudience, Tampered, Oversized, Empty, Revoked}

// Subject is an authenticator under test.
type Subject struct {
	Authenticator authn.Authenticator
	Good          func() *http.Request // returns a request with a valid credential
	User          authn.User           // the user of the good request
	Secrets       []string             // texts that no error may contain
	Bad           map[Hazard][]Attack
	Exempt        map[Hazard]string // why a hazard cannot occur
}

// Attack is a request that must not be authenticated.
type Attack struct {
	Name      string
	Before    func()               // called after the good request and before the bad one, unless nil
	Request   func() *http.Request // returns the bad request; if nil, the good one is sent again
	Audiences []string             // if set, the request's token is reviewed for these
	Error     string               // a part of the error; empty if there must be neither a user nor an error
}

// Run tests the subjects that newSubject returns. Every attack comes after a good request, so that an authenticator that caches has the
// good credential in its cache.
func Run(t *testing.T, newSubject func(t *testing.T) *Subject) {
	s := newSubject(t)
	t.Run("good", func(t *testing.T) {
		var together sync.WaitGroup
		for range 8 {
			together.Go(func() { mustAuthenticate(t, s) })
		}
		together.Wait()
	})
	for _, hazard := range hazards {
		attacks, why := s.Bad[hazard], s.Exempt[hazard]
		if (len(attacks) == 0) == (why == "") {
			t.Errorf("%s: there must be attacks, or a reason why there are none", hazard)
		}
		for n, attack := range attacks {
			t.Run(string(hazard)+"/"+attack.Name, func(t *testing.T) {
				s := newSubject(t)
				mustAuthenticate(t, s)
				mustRefuse(t, s, s.Bad[hazard][n])
			})
		}
	}
}

func mustAuthenticate(t *testing.T, s *Subject) {
	r := s.Good()
	user, err := s.Authenticator.Authenticate(r)
	if err != nil || user == nil {
		t.Errorf("good credential refused: user %v, error %v", user, err)
		return
	}
	if !reflect.DeepEqual(*user, s.User) {
		t.Errorf("got user\n%#v, want\n%#v", *user, s.User)
	}
	if r.Header.Get("Authorization") != "" {
		t.Error("the token is still in the request")
	}
}

func mustRefuse(t *testing.T, s *Subject, attack Attack) {
	if attack.Before != nil {
		attack.Before()
	}
	if attack.Request == nil {
		attack.Request = s.Good
	}
	user, err := authenticate(s, attack)
	if user != nil {
		t.Errorf("recognized as %v", user)
	}
	if attack.Error == "" && err != nil || attack.Error != "" && (err == nil || !strings.Contains(err.Error(), attack.Error)) {
		t.Errorf("got error %v, want %q", err, attack.Error)
	}
	for _, secret := range s.Secrets {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("error contains a secret: %v", err)
		}
	}
}

func authenticate(s *Subject, attack Attack) (*authn.User, error) {
	r := attack.Request()
	if attack.Audiences == nil {
		return s.Authenticator.Authenticate(r)
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, _, err := s.Authenticator.(authn.TokenAuthenticator).AuthenticateToken(context.Background(), token, attack.Audiences)
	return user, err
}

// WithToken returns a request with the bearer token.
func WithToken(token string) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "https://server/api", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
