package serviceaccount

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// enforceAnnotation on a service account forbids its pods to use secrets that the account does not list.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

func limitsSecrets(account *corev1.ServiceAccount) bool {
	enforce, err := strconv.ParseBool(account.Annotations[enforceAnnotation])
	return err == nil && enforce
}

// checkSecrets returns an error for the first secret that a pod uses and its account does not list.
func checkSecrets(spec *corev1.PodSpec, account *corev1.ServiceAccount) error {
	listed := mountable(account)
	for i := range spec.Volumes {
		if secret := spec.Volumes[i].Secret; secret != nil && !listed[secret.SecretName] {
			return fmt.Errorf("volume with secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				secret.SecretName, account.Name)
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if err := checkEnvironment("init container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
			return err
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if err := checkEnvironment("container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
			return err
		}
	}
	pullable := map[string]bool{}
	for _, secret := range account.ImagePullSecrets {
		pullable[secret.Name] = true
	}
	for i, secret := range spec.ImagePullSecrets {
		if !pullable[secret.Name] {
			return fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference that imagePullSecret`,
				i, secret.Name, account.Name)
		}
	}
	return nil
}

// checkEphemeral returns an error for the first secret that an ephemeral container uses and the pod's account does not list.
func checkEphemeral(spec *corev1.PodSpec, account *corev1.ServiceAccount) error {
	listed := mountable(account)
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		if err := checkEnvironment("ephemeral container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
			return err
		}
	}
	return nil
}

func mountable(account *corev1.ServiceAccount) map[string]bool {
	listed := make(map[string]bool, len(account.Secrets))
	for i := range account.Secrets {
		listed[account.Secrets[i].Name] = true
	}
	return listed
}

func checkEnvironment(kind, container string, env []corev1.EnvVar, from []corev1.EnvFromSource, account *corev1.ServiceAccount, listed map[string]bool) error {
	for i := range env {
		if source := env[i].ValueFrom; source != nil && source.SecretKeyRef != nil && !listed[source.SecretKeyRef.Name] {
			return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				kind, container, env[i].Name, source.SecretKeyRef.Name, account.Name)
		}
	}
	for i := range from {
		if ref := from[i].SecretRef; ref != nil && !listed[ref.Name] {
			return fmt.Errorf("%s %s with envFrom referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				kind, container, ref.Name, account.Name)
		}
	}
	return nil
}
