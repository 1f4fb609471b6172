package v1alpha1

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "sample/api/v1"
)

// TestRoundTrip converts Sites from v1 to v1alpha1 and back, which loses nothing.
func TestRoundTrip(t *testing.T) {
	two := int32(2)
	for _, site := range []*v1.Site{
		{},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"k": "v"}}, Spec: v1.SiteSpec{Image: "i", Replicas: &two, Port: 80, Pages: map[string]string{"index.html": "x"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"k": "v"}}, Spec: v1.SiteSpec{Pages: map[string]string{"index.html": "x", "about.html": "y"}}},
	} {
		old, back := &Site{}, &v1.Site{}
		if err := old.ConvertFrom(site); err != nil {
			t.Fatal(err)
		}
		if err := old.ConvertTo(back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, site) {
			t.Errorf("%+v became %+v", site, back)
		}
	}
}

// TestListen refuses an address that has no port.
func TestListen(t *testing.T) {
	if err := (&Site{Spec: SiteSpec{Listen: "everywhere"}}).ConvertTo(&v1.Site{}); err == nil {
		t.Error("converted")
	}
}
