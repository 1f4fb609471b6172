package volume

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// anchors returns the certificates of one trust bundle, or of all bundles of a signer that match a selector.
func (c *collector) anchors(source *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	may := source.Optional != nil && *source.Optional
	switch {
	case source.Name != nil:
		bundle, err := c.m.opts.Source.TrustBundle(c.ctx, *source.Name)
		switch {
		case apierrors.IsNotFound(err) && may:
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		return certificates(bundle), nil
	case source.SignerName != nil:
		selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector) // none given matches nothing
		if err != nil {
			return nil, fmt.Errorf("while parsing label selector: %w", err)
		}
		all, err := c.m.opts.Source.TrustBundles(c.ctx)
		if err != nil {
			return nil, fmt.Errorf("while listing ClusterTrustBundles: %w", err)
		}
		chosen := slices.DeleteFunc(slices.Clone(all), func(b *certificatesv1.ClusterTrustBundle) bool {
			return b.Spec.SignerName != *source.SignerName || !selector.Matches(labels.Set(b.Labels))
		})
		if len(chosen) == 0 && !may {
			return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
		}
		return certificates(chosen...), nil
	}
	return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
}

// certificates returns those of all bundles, each once, without comments and headers. Their order means nothing but stays the same.
func certificates(bundles ...*certificatesv1.ClusterTrustBundle) []byte {
	found := map[string]bool{}
	for _, b := range bundles {
		for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			found[string(block.Bytes)] = true
		}
	}
	var out bytes.Buffer
	for _, der := range slices.Sorted(maps.Keys(found)) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}))
	}
	return out.Bytes()
}
