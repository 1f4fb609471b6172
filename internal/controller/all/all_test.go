package all

import (
	"testing"

	"skiff/internal/controller"
)

var nothing controller.Deps

func TestChoosing(t *testing.T) {
	for _, c := range []struct {
		chosen []string
		want   bool
	}{
		{[]string{"*"}, true}, {nil, false}, {[]string{"a"}, true}, {[]string{"b"}, false}, {[]string{"*", "-a"}, false}, {[]string{"-a", "*"}, false}, {[]string{"-a", "a"}, true}, {[]string{"*", "-b"}, true},
	} {
		if got := On("a", c.chosen); got != c.want {
			t.Errorf("%v: %v", c.chosen, got)
		}
	}
	if _, err := New([]string{"*", "-nonsense"}, nothing); err == nil || err.Error() != `"nonsense" is not in the list of known controllers` {
		t.Error(err)
	}
}
