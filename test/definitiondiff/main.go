package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ours "skiff/internal/catalog/apiextensions"
	"skiff/test/nonsense"
)

type definition = apiextensionsv1.CustomResourceDefinition

func main() {
	first := flag.Uint64("seed", 1, "first seed")
	count := flag.Uint64("count", 30000, "number of seeds, each a definition")
	most := flag.Int("show", 20, "how many differences to print")
	flag.Parse()
	fmt.Printf("comparing with upstream's validation on definitions of seeds %d to %d\n", *first, *first+*count-1)
	c := comparison{most: *most}
	for seed := *first; seed < *first+*count; seed++ {
		base := seed % uint64(len(nonsense.Definitions))
		d := &definition{}
		if json.Unmarshal(nonsense.New(seed).JSON(nonsense.Definitions[base]), d) != nil {
			continue // neither server gets to judging it
		}
		d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		c.compare(seed, d)
	}
	fmt.Printf("%d definitions, of which %d are valid: %d differences; upstream panicked at %d\n", c.judged, c.valid, c.differences, c.panics)
	if c.differences > 0 {
		os.Exit(1)
	}
}

type comparison struct {
	most                               int
	judged, valid, differences, panics int
	last                               *definition // that was valid
}

func (c *comparison) compare(seed uint64, d *definition) {
	c.judged++
	info := ours.CustomResourceDefinition.Info()
	created := d.DeepCopy()
	got := judged(func() field.ErrorList {
		info.Default(created)
		recordStored(created)
		return info.Validate(created)
	})
	want := judged(func() field.ErrorList {
		return validation.ValidateCustomResourceDefinition(context.Background(), internal(d, nil))
	})
	c.report(seed, "create", got, want)
	if len(got) == 0 {
		c.valid++
		c.last = created
	}
	if c.last == nil {
		return
	}
	old := c.last.DeepCopy()
	if seed%3 == 0 {
		old.Status.Conditions = append(old.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue})
	}
	old.ResourceVersion = "1"
	updated := d.DeepCopy()
	updated.Name, updated.ResourceVersion = old.Name, "1"
	again := updated.DeepCopy()
	got = judged(func() field.ErrorList {
		info.Default(updated)
		updated.Status = *old.Status.DeepCopy()
		recordStored(updated)
		return info.ValidateUpdate(updated, old)
	})
	want = judged(func() field.ErrorList {
		return validation.ValidateCustomResourceDefinitionUpdate(context.Background(), internal(again, &old.Status), internal(old, &old.Status))
	})
	c.report(seed, "update", got, want)
}

// internal returns a definition as upstream's strategy hands it to validation, with a status.
func internal(d *definition, status *apiextensionsv1.CustomResourceDefinitionStatus) *apiextensions.CustomResourceDefinition {
	d = d.DeepCopy()
	if apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d); status != nil {
		d.Status = *status.DeepCopy()
	}
	recordStored(d)
	converted := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, converted, nil); err != nil {
		panic(err)
	}
	return converted
}

// recordStored adds the storage version to those that objects are stored in.
func recordStored(d *definition) {
	for i := range d.Spec.Versions {
		if v := &d.Spec.Versions[i]; v.Storage {
			if !slices.Contains(d.Status.StoredVersions, v.Name) {
				d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}

var (
	panicked = []string{"panicked"}
	selfType = regexp.MustCompile("selfType[0-9]+") // of a random number
)

// judged returns the texts of errors in order, but for those about metadata, which the server adds.
func judged(judge func() field.ErrorList) (texts []string) {
	defer func() {
		if recover() != nil {
			texts = panicked
		}
	}()
	for _, err := range judge() {
		if text := err.Error(); !strings.HasPrefix(text, "metadata.") {
			texts = append(texts, selfType.ReplaceAllString(text, "selfType"))
		}
	}
	slices.Sort(texts)
	return texts
}

func (c *comparison) report(seed uint64, what string, got, want []string) {
	if slices.Equal(want, panicked) && !slices.Equal(got, panicked) {
		c.panics++
		return
	}
	if slices.Equal(got, want) {
		return
	}
	if c.differences++; c.differences <= c.most {
		fmt.Printf("seed %d, %s:\n got  %.2000q\n want %.2000q\n", seed, what, got, want)
	}
}
