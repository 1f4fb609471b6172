package local

import (
	"strings"
	"testing"
)

func TestCheckReport(t *testing.T) {
	for _, c := range []struct{ name, report, err string }{
		{"whole", "start a V 0\nack a 1\nack a 2\nstart b V 2\nack b 3\n", ""},
		{"written, and not acknowledged", "start a V 0\nack a 1\nstart b V 2\nack b 3\n", ""},
		{"another claim", "start a V 0\nack a 1\nstart b W 0\nack b 1\n", ""},
		{"lost", "start a V 0\nack a 1\nack a 2\nstart b V 1\n", `line 4: "start b V 1", and 2 was acknowledged`},
		{"two at once", "start a V 0\nack a 1\nstart b V 1\nack a 2\n", `line 4: "ack a 2", while b writes`},
		{"skipped", "start a V 0\nack a 2\n", `line 2: "ack a 2" after 0`},
		{"not whole", "start a V 0\nbroken b V\n", `line 2: "broken b V"`},
	} {
		volumes, err := checkReport(c.report)
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		if want := 1 + strings.Count(c.report, " W "); volumes != want {
			t.Errorf("%s: %d volumes, want %d", c.name, volumes, want)
		}
	}
}
