package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const storedBeta = group + "/v1beta1"

// unmarshalStored decodes the JSON of a stored definition: of v1, or of v1beta1, in which kube-apiserver stores definitions to this day.
func unmarshalStored(value []byte, d *definition) error {
	var stored metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &stored); err != nil {
		return err
	}
	if stored.APIVersion != storedBeta {
		return kjson.UnmarshalCaseSensitivePreserveInts(value, d)
	}
	beta := betaDefinition{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &beta); err != nil {
		return err
	}
	*d = definition{TypeMeta: beta.TypeMeta, ObjectMeta: beta.ObjectMeta, Spec: beta.Spec.spec(), Status: beta.Status}
	return nil
}

// betaDefinition is a definition of v1beta1. Its types name what differs from v1; the fields of an embedded type that are named again are not decoded.
type betaDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              betaSpec                                       `json:"spec"`
	Status            apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
}

type betaSpec struct {
	apiextensionsv1.CustomResourceDefinitionSpec `json:",inline"`

	Version               string          `json:"version"`
	Versions              []betaVersion   `json:"versions"`
	Conversion            *betaConversion `json:"conversion"`
	PreserveUnknownFields *bool           `json:"preserveUnknownFields"`

	// What holds for every version, in the place of what a version says itself.
	Schema           *apiextensionsv1.CustomResourceValidation   `json:"validation"`
	Subresources     *apiextensionsv1.CustomResourceSubresources `json:"subresources"`
	Columns          []betaColumn                                `json:"additionalPrinterColumns"`
	SelectableFields []apiextensionsv1.SelectableField           `json:"selectableFields"`
}

type betaVersion struct {
	apiextensionsv1.CustomResourceDefinitionVersion `json:",inline"`

	Columns []betaColumn `json:"additionalPrinterColumns"`
}

type betaColumn struct {
	apiextensionsv1.CustomResourceColumnDefinition `json:",inline"`

	Path string `json:"JSONPath"`
}

type betaConversion struct {
	Strategy       apiextensionsv1.ConversionStrategyType `json:"strategy"`
	ClientConfig   *apiextensionsv1.WebhookClientConfig   `json:"webhookClientConfig"`
	ReviewVersions []string                               `json:"conversionReviewVersions"`
}

// spec returns the spec in v1, with the defaults of v1beta1 where those of v1 differ.
func (b *betaSpec) spec() apiextensionsv1.CustomResourceDefinitionSpec {
	s := b.CustomResourceDefinitionSpec
	if s.Scope == "" {
		s.Scope = apiextensionsv1.NamespaceScoped
	}
	s.PreserveUnknownFields = b.PreserveUnknownFields == nil || *b.PreserveUnknownFields
	s.Conversion = b.Conversion.conversion()
	versions := b.Versions
	if len(versions) == 0 && b.Version != "" {
		versions = []betaVersion{{CustomResourceDefinitionVersion: apiextensionsv1.CustomResourceDefinitionVersion{Name: b.Version, Served: true, Storage: true}}}
	}
	for _, v := range versions {
		version := v.CustomResourceDefinitionVersion
		version.AdditionalPrinterColumns = columnsOf(v.Columns)
		if b.Schema != nil {
			version.Schema = b.Schema.DeepCopy()
		}
		if b.Subresources != nil {
			version.Subresources = b.Subresources.DeepCopy()
		}
		if b.Columns != nil {
			version.AdditionalPrinterColumns = columnsOf(b.Columns)
		}
		if b.SelectableFields != nil {
			version.SelectableFields = b.SelectableFields
		}
		s.Versions = append(s.Versions, version)
	}
	return s
}

func columnsOf(beta []betaColumn) []apiextensionsv1.CustomResourceColumnDefinition {
	var columns []apiextensionsv1.CustomResourceColumnDefinition
	for _, c := range beta {
		c.JSONPath = c.Path
		columns = append(columns, c.CustomResourceColumnDefinition)
	}
	return columns
}

func (b *betaConversion) conversion() *apiextensionsv1.CustomResourceConversion {
	if b == nil {
		return nil
	}
	c := &apiextensionsv1.CustomResourceConversion{Strategy: b.Strategy}
	if c.Strategy == apiextensionsv1.WebhookConverter && len(b.ReviewVersions) == 0 {
		b.ReviewVersions = []string{"v1beta1"}
	}
	if b.ClientConfig != nil || b.ReviewVersions != nil {
		c.Webhook = &apiextensionsv1.WebhookConversion{ClientConfig: b.ClientConfig, ConversionReviewVersions: b.ReviewVersions}
	}
	return c
}
