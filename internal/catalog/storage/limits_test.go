package storage

import (
	"fmt"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParameterLimits(t *testing.T) {
	many, large := map[string]string{}, map[string]string{"a": strings.Repeat("x", maxParameterSize)}
	for i := range maxParameters + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, test := range map[string]struct {
		parameters map[string]string
		want       string
	}{
		"many":  {many, "parameters: Too long: may not be more than 512 bytes"},
		"large": {large, "parameters: Too long: may not be more than 262144 bytes"},
	} {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "p", Parameters: test.parameters}
		StorageClass.Default(c)
		if errs := StorageClass.Validate(c); len(errs) != 1 || errs[0].Error() != test.want {
			t.Errorf("%s: %v, want %s", name, errs, test.want)
		}
	}
}

func TestAttachmentLimits(t *testing.T) {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	pv := "pv"
	a.Spec = storagev1.VolumeAttachmentSpec{Attacher: "a", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
	a.Status.AttachmentMetadata = map[string]string{"a": strings.Repeat("x", maxAttachmentMetadata)}
	a.Status.AttachError = &storagev1.VolumeError{Message: strings.Repeat("x", maxErrorMessage+1)}
	errs := VolumeAttachment.Status.ValidateUpdate(a, a)
	want := "[status.attachmentMetadata: Too long: may not be more than 262144 bytes, status.attachError.message: Too long: may not be more than 1024 bytes]"
	if got := errs.ToAggregate().Error(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
