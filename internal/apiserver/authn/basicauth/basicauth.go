package basicauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"skiff/internal/apiserver/authn"
)

// MaxCredential is the maximum length of a user's name and password together. Longer ones are refused before any work is spent on them.
const MaxCredential = 4 << 10

var errInvalid = errors.New("invalid username/password combination")

// Authenticator authenticates the users of a file. It keeps only hashes of their passwords.
type Authenticator struct {
	entries map[string]entry
}

type entry struct {
	user         *authn.User
	passwordHash [sha256.Size]byte
}

// Read reads a file with a line of comma-separated values per user: the password, the user's name and UID, and the groups, if any, as one
// quoted value. Of lines with the same name the last counts.
func Read(path string, log *slog.Logger) (*Authenticator, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f, path, log)
}

func parse(content io.Reader, path string, log *slog.Logger) (*Authenticator, error) {
	a := &Authenticator{entries: map[string]entry{}}
	lines := csv.NewReader(content)
	lines.FieldsPerRecord = -1
	for number := 1; ; number++ {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, fmt.Errorf("password file '%s': %w", path, err)
		}
		if len(line) < 3 {
			return nil, fmt.Errorf("password file '%s' must have at least 3 columns (password, user name, user uid), found %d", path, len(line))
		}
		user := &authn.User{Username: line[1], UID: line[2]}
		if len(line) >= 4 {
			user.Groups = strings.Split(line[3], ",")
		}
		if _, ok := a.entries[user.Username]; ok {
			log.Warn("duplicate username has been found in password file", "file", path, "record", number)
		}
		a.entries[user.Username] = entry{user, sha256.Sum256([]byte(line[0]))}
	}
}

// Authenticate removes the password from a request that it authenticates, so that no later handler sees it.
func (a *Authenticator) Authenticate(r *http.Request) (*authn.User, error) {
	header := r.Header.Get("Authorization")
	if len(header) > MaxCredential*4/3+len("Basic ") && strings.EqualFold(header[:len("Basic ")], "Basic ") {
		return nil, errInvalid
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		return nil, nil
	}
	// The password of an unknown user is hashed and compared too, so that the time it takes does not tell which users exist.
	known, ok := a.entries[name]
	hash := sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(hash[:], known.passwordHash[:]) == 0 || !ok {
		return nil, errInvalid
	}
	r.Header.Del("Authorization")
	return known.user, nil
}
