package resourcequota

import (
	"testing"
	"time"

	"k8s.io/client-go/informers"

	"skiff/internal/controller"
)

// A quota that is not enforced yet is counted before known quotas, which yield.
func TestNewQuotasFirst(t *testing.T) {
	old, fresh := controller.Key{Namespace: "a", Name: "old"}, controller.Key{Namespace: "b", Name: "new"}
	l := &loop{unenforced: map[controller.Key]time.Time{fresh: time.Now()}, quotas: informers.NewSharedInformerFactory(nil, 0).Core().V1().ResourceQuotas().Lister()}
	if d := l.reconcile(old, time.Now()); d.RequeueAfter != yieldTime {
		t.Errorf("the old one did not step yieldTime: %+v", d)
	}
	if d := l.reconcile(fresh, time.Now()); d.RequeueAfter != 0 {
		t.Errorf("the new one did: %+v", d)
	}
	if d := l.reconcile(old, time.Now()); d.RequeueAfter != 0 {
		t.Errorf("the old one still does: %+v", d)
	}
	// A quota that is not counted does not hold up others for long.
	l.unenforced[fresh] = time.Now().Add(-maxYield)
	if d := l.reconcile(old, time.Now()); d.RequeueAfter != 0 || len(l.unenforced) != 0 {
		t.Errorf("held up: %+v", d)
	}
}
