package core

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

var Secret = catalog.Resource[corev1.Secret]{
	Version: "v1", Kind: "Secret", Plural: "secrets", Namespaced: true,
	EndsTokens:          true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultSecret,
	Validate:            validateSecret,
	ValidateUpdate:      validateSecretUpdate,
	Warnings:            secretWarnings,
	Fields: []catalog.Field[corev1.Secret]{
		{Name: "type", Value: func(s *corev1.Secret) string { return string(s.Type) }},
	},
	Columns: []catalog.Column[corev1.Secret]{
		catalog.NameColumn[corev1.Secret](),
		{Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"],
			Cell: func(s *corev1.Secret, _ time.Time) any { return string(s.Type) }},
		{Name: "Data", Description: corev1.Secret{}.SwaggerDoc()["data"],
			Cell: func(s *corev1.Secret, _ time.Time) any { return int64(len(s.Data)) }},
		catalog.AgeColumn[corev1.Secret](),
	},
	Complete: true,
}

// defaultSecret sets the type and moves stringData, which clients may write in place of data, into data.
func defaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	errs, size := validateData("data", s.Data)
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(s)...)
}

// validateSecretType checks that a secret has the data its type requires. Types that Kubernetes does not define require nothing.
func validateSecretType(s *corev1.Secret) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		// The token itself may be filled in later by a controller.
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return validateJSONKey(s.Data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return validateJSONKey(s.Data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth: // one of the two is enough, and may be empty
		errs := requireKeys(s.Data, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		if len(errs) == 2 {
			return errs
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return requireKeys(nil, corev1.SSHAuthPrivateKey)
		}
	case corev1.SecretTypeTLS:
		return requireKeys(s.Data, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func requireKeys(data map[string][]byte, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, ok := data[key]; !ok {
			errs = append(errs, field.Required(field.NewPath("data").Key(key), ""))
		}
	}
	return errs
}

func validateJSONKey(data map[string][]byte, key string) field.ErrorList {
	if errs := requireKeys(data, key); len(errs) > 0 {
		return errs
	}
	var object map[string]any
	if err := json.Unmarshal(data[key], &object); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("data").Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(new, old *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	if new.Type != old.Type {
		errs = append(errs, field.Invalid(field.NewPath("type"), new.Type, validation.FieldImmutableErrorMsg))
	}
	if isTrue(old.Immutable) {
		errs = append(errs, immutable("immutable", isTrue(new.Immutable))...)
		errs = append(errs, immutable("data", maps.EqualFunc(new.Data, old.Data, bytes.Equal))...)
	}
	return append(errs, validateSecret(new)...)
}

func secretWarnings(new, _ *corev1.Secret) []string {
	if new.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(new.Data[corev1.TLSCertKey], new.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
