package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "sample/api/v1"
)

const (
	// indexPage is the page that this version has.
	indexPage = "index.html"
	// otherPages is the annotation that keeps the pages for which this version has no field.
	otherPages = "sample.example.com/other-pages"
)

// ConvertTo implements conversion.Convertible.
func (s *Site) ConvertTo(hub conversion.Hub) error {
	from, to := s.DeepCopyObject().(*Site), hub.(*v1.Site)
	to.ObjectMeta, to.Status = from.ObjectMeta, from.Status
	to.Spec.Image, to.Spec.Replicas = from.Spec.Image, from.Spec.Replicas
	if from.Spec.Listen != "" {
		port, err := strconv.ParseInt(strings.TrimPrefix(from.Spec.Listen, ":"), 10, 32)
		if err != nil {
			return fmt.Errorf("spec.listen of site %s must be a colon and a port, not %q", from.Name, from.Spec.Listen)
		}
		to.Spec.Port = int32(port)
	}
	if others, ok := from.Annotations[otherPages]; ok {
		if err := json.Unmarshal([]byte(others), &to.Spec.Pages); err != nil {
			return fmt.Errorf("annotation %s of site %s: %w", otherPages, from.Name, err)
		}
		delete(to.Annotations, otherPages)
	}
	if from.Spec.Page != "" {
		if to.Spec.Pages == nil {
			to.Spec.Pages = map[string]string{}
		}
		to.Spec.Pages[indexPage] = from.Spec.Page
	}
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (s *Site) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*v1.Site).DeepCopyObject().(*v1.Site)
	s.ObjectMeta, s.Status = from.ObjectMeta, from.Status
	s.Spec = SiteSpec{Image: from.Spec.Image, Replicas: from.Spec.Replicas, Page: from.Spec.Pages[indexPage]}
	if from.Spec.Port != 0 {
		s.Spec.Listen = fmt.Sprintf(":%d", from.Spec.Port)
	}
	others := maps.Clone(from.Spec.Pages)
	delete(others, indexPage)
	if len(others) == 0 {
		return nil
	}
	kept, err := json.Marshal(others)
	if err != nil {
		return err
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[otherPages] = string(kept)
	return nil
}
