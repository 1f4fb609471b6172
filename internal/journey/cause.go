package journey

import (
	"errors"
	"strconv"
	"strings"
)

// HeaderCause is the header with the object versions that a request is made because of, as its client observed them: "uid@resourceVersion", and up
// to MaxCauses of them separated by commas. Package client sets it. A server that does not know it ignores it, and so
// does this one if it is malformed: a request never fails because of it.
const HeaderCause = "Skiff-Cause"

const (
	// MaxCauses is the number of causes a request can have; further ones are not recorded.
	MaxCauses = 4

	maxUID = 36 // length of a UUID; the API server assigns no longer uids
)

// A Cause is the version of an object that a request or span was made because of.
type Cause struct {
	UID      string
	Revision int64 // the object's resourceVersion
}

// String formats a cause for HeaderCause.
func (c Cause) String() string { return c.UID + "@" + strconv.FormatInt(c.Revision, 10) }

// FormatCauses formats the value of HeaderCause.
func FormatCauses(causes []Cause) string {
	var b []byte
	for i, c := range causes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, c.UID...), '@')
		b = strconv.AppendInt(b, c.Revision, 10)
	}
	return string(b)
}

var errCause = errors.New("cause: want uid@resourceVersion, with a uid of at most 36 letters, digits and dashes and a positive resourceVersion")

// ParseCauses parses the value of HeaderCause: one to MaxCauses causes.
func ParseCauses(header string) ([]Cause, error) {
	const longest = MaxCauses*(maxUID+len("@9223372036854775807, ")) - len(", ")
	if len(header) > longest || strings.Count(header, ",") >= MaxCauses {
		return nil, errCause
	}
	var causes []Cause
	for field := range strings.SplitSeq(header, ",") {
		c, err := parseCause(strings.Trim(field, " "))
		if err != nil {
			return nil, err
		}
		causes = append(causes, c)
	}
	return causes, nil
}

func parseCause(s string) (Cause, error) {
	uid, version, _ := strings.Cut(s, "@")
	if uid == "" || len(uid) > maxUID || version == "" || version[0] < '1' || version[0] > '9' {
		return Cause{}, errCause
	}
	for i := range len(uid) {
		if c := uid[i] | 0x20; !('a' <= c && c <= 'z' || '0' <= uid[i] && uid[i] <= '9' || uid[i] == '-') {
			return Cause{}, errCause
		}
	}
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return Cause{}, errCause
	}
	return Cause{UID: uid, Revision: revision}, nil
}
