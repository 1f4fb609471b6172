// Package authntest is the suite that every authenticator must pass, and what its tests are made with.
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

// Hazards are the ways that every authenticator must have an answer to.
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

// Subject is an authenticator under test, with its own world.
type Subject struct {
	Authenticator authn.Authenticator
	Good          func() *http.Request // with a credential that is good
	User          authn.User           // whose it is
	Secrets       []string             // what no error may contain
	Bad           map[Hazard][]Attack
	Spared        map[Hazard]string // hazards that there cannot be, and why
}

// Attack is a request that must not be recognized.
type Attack struct {
	Name      string
	Happens   func()               // what happens after the good request was served, and before the bad one; may be nil
	Request   func() *http.Request // the good one again if nil
	Audiences []string             // if given, the request's token is reviewed for these
	Error     string               // part of the error; empty if the credential is only not recognized
}

// Run tests the subjects that fresh makes. Every attack comes after a good request, so that whatever an authenticator remembers, it
// remembers then.
func Run(t *testing.T, fresh func(t *testing.T) *Subject) {
	s := fresh(t)
	t.Run("good", func(t *testing.T) {
		var together sync.WaitGroup
		for range 8 {
			together.Go(func() { mustKnow(t, s) })
		}
		together.Wait()
	})
	for _, hazard := range hazards {
		attacks, why := s.Bad[hazard], s.Spared[hazard]
		if (len(attacks) == 0) == (why == "") {
			t.Errorf("%s: there must be attacks, or a reason why there are none", hazard)
		}
		for n, attack := range attacks {
			t.Run(string(hazard)+"/"+attack.Name, func(t *testing.T) {
				s := fresh(t)
				mustKnow(t, s)
				mustRefuse(t, s, s.Bad[hazard][n])
			})
		}
	}
}

func mustKnow(t *testing.T, s *Subject) {
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
	if attack.Happens != nil {
		attack.Happens()
	}
	if attack.Request == nil {
		attack.Request = s.Good
	}
	user, err := ask(s, attack)
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

func ask(s *Subject, attack Attack) (*authn.User, error) {
	r := attack.Request()
	if attack.Audiences == nil {
		return s.Authenticator.Authenticate(r)
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, _, err := s.Authenticator.(authn.TokenAuthenticator).AuthenticateToken(context.Background(), token, attack.Audiences)
	return user, err
}

// WithToken returns a request with a bearer token.
func WithToken(token string) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "https://server/api", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
