package apiserver

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"os"
	"strings"
)

// serverID returns the identity of an API server on this machine, as upstream makes it: some metrics have its hash.
func serverID() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	var text []byte
	for _, part := range []string{host, "kube-apiserver"} {
		text = binary.BigEndian.AppendUint16(text, uint16(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(text)
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
