package front

import "testing"

// A list or watch of one object is authorized as one of that object, as upstream does.
func TestSelectedName(t *testing.T) {
	for selector, want := range map[string]string{
		"": "", "metadata.name=n1": "n1", "metadata.name==n1,spec.unschedulable=false": "n1", "metadata.name!=n1": "", "spec.nodeName=n1": "",
		"metadata.name=a/b": "", "metadata.name=..": "", "metadata.name": "", "metadata.name=": "",
	} {
		if got := nameInSelector(selector); got != want {
			t.Errorf("%q selects %q, want %q", selector, got, want)
		}
	}
}
