package tokenfile

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"skiff/internal/apiserver/authn"
)

// Authenticator authenticates the tokens of a file. It keeps only their hashes: a lookup takes equally long for any token, and the tokens
// themselves are not in memory.
type Authenticator struct {
	users map[[sha256.Size]byte]*authn.User
}

// Read reads a file with a line of comma-separated values per token: the token, the user's name and UID, and the groups, if any, as one
// quoted value.
func Read(path string, log *slog.Logger) (*Authenticator, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := &Authenticator{users: map[[sha256.Size]byte]*authn.User{}}
	lines := csv.NewReader(f)
	lines.FieldsPerRecord = -1
	for number := 1; ; number++ {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, fmt.Errorf("token file '%s': %w", path, err)
		}
		if len(line) < 3 {
			return nil, fmt.Errorf("token file '%s' must have at least 3 columns (token, user name, user uid), found %d", path, len(line))
		}
		if line[0] == "" {
			log.Warn("empty token has been found in token file", "file", path, "record", number)
			continue
		}
		user := &authn.User{Username: line[1], UID: line[2]}
		if len(line) >= 4 {
			user.Groups = strings.Split(line[3], ",")
		}
		key := sha256.Sum256([]byte(line[0]))
		if a.users[key] != nil {
			log.Warn("duplicate token has been found in token file", "file", path, "record", number)
		}
		a.users[key] = user
	}
}

// Authenticate returns the token's user, nil if the file does not have the token.
func (a *Authenticator) Authenticate(_ context.Context, token string) (*authn.User, error) {
	return a.users[sha256.Sum256([]byte(token))], nil
}
