package skifftest_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/skifftest"
)

func TestStart(t *testing.T) {
	for range 5 {
		began := time.Now()
		s := skifftest.Start(t)
		t.Log(time.Since(began))
		if _, err := s.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
