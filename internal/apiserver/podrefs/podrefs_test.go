package podrefs_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/podrefs"
)

func TestReferences(t *testing.T) {
	for _, c := range []struct {
		spec              string
		secret, configMap bool
	}{
		{`{containers: [{name: c, env: [{name: E, value: v}]}], volumes: [{name: v, emptyDir: {}}]}`, false, false},
		{`{imagePullSecrets: [{name: s}]}`, true, false},
		{`{imagePullSecrets: [{name: ""}]}`, false, false},
		{`{initContainers: [{name: c, envFrom: [{secretRef: {name: s}}]}]}`, true, false},
		{`{containers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}`, true, false},
		{`{ephemeralContainers: [{name: c, env: [{name: E, valueFrom: {configMapKeyRef: {name: s, key: k}}}]}]}`, false, true},
		{`{containers: [{name: c, envFrom: [{configMapRef: {name: s}}]}]}`, false, true},
		{`{volumes: [{name: v, azureFile: {secretName: s, shareName: h}}]}`, true, false},
		{`{volumes: [{name: v, cephfs: {monitors: [], secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, cephfs: {monitors: []}}]}`, false, false},
		{`{volumes: [{name: v, cinder: {volumeID: i, secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, flexVolume: {driver: d, secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, projected: {sources: [{downwardAPI: {}}, {secret: {name: s}}]}}]}`, true, false},
		{`{volumes: [{name: v, projected: {sources: [{configMap: {name: s}}]}}]}`, false, true},
		{`{volumes: [{name: v, rbd: {monitors: [], image: i, secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, secret: {secretName: s}}]}`, true, false},
		{`{volumes: [{name: v, configMap: {name: s}}]}`, false, true},
		{`{volumes: [{name: v, scaleIO: {gateway: g, system: s, secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, iscsi: {targetPortal: t, iqn: i, lun: 1, secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, storageos: {secretRef: {name: s}}}]}`, true, false},
		{`{volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: s}}}]}`, true, false},
	} {
		spec := admissiontest.Parse(t, &corev1.PodSpec{}, c.spec)
		if secret, configMap := podrefs.HasSecret(spec), podrefs.HasConfigMap(spec); secret != c.secret || configMap != c.configMap {
			t.Errorf("secret %v, config map %v in %s", secret, configMap, c.spec)
		}
	}
}
