package volume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/signer"
)

// projection validates one projected volume: several sources that write into one directory.
type projection struct {
	*check.Part                     // the projected volume
	files       map[string]struct{} // paths of the files seen so far
}

func checkProjected(at *check.Part, v *corev1.ProjectedVolumeSource) {
	checkFileDefaults(at, v.DefaultMode, v.DefaultUser)
	p := projection{Part: at}
	for i := range v.Sources {
		p.source(at.Item("sources", i), &v.Sources[i])
	}
}

func (p *projection) source(at *check.Part, s *corev1.VolumeProjection) {
	count := 0
	if c := s.Secret; c != nil {
		count++
		p.keys(at.Child("secret"), c.Name, c.Items)
	}
	if c := s.ConfigMap; c != nil {
		count++
		p.keys(at.Child("configMap"), c.Name, c.Items)
	}
	if s.DownwardAPI != nil {
		count++
		for i := range s.DownwardAPI.Items {
			f := &s.DownwardAPI.Items[i]
			checkDownwardFile(at.Child("downwardAPI"), f)
			p.write(f.Path, f.Path)
		}
	}
	if s.ServiceAccountToken != nil {
		count++
		p.token(at.Child("serviceAccountToken"), s.ServiceAccountToken)
	}
	if s.ClusterTrustBundle != nil {
		count++
		p.trustBundle(at.Child("clusterTrustBundle"), s.ClusterTrustBundle)
	}
	if s.PodCertificate != nil {
		count++
		p.certificate(at.Child("podCertificate"), s.PodCertificate)
	}
	if count > 1 {
		at.Forbidden("", "may not specify more than 1 volume type per source")
	}
}

// write records that a source writes a file, and adds an error that shows value if another source writes it too.
func (p *projection) write(file, value string) {
	if file != "" {
		p.writeAny(file, value)
	}
}

func (p *projection) writeAny(file, value string) {
	if _, taken := p.files[file]; taken {
		p.Invalid("", value, "conflicting duplicate paths")
		return
	}
	if p.files == nil {
		p.files = map[string]struct{}{}
	}
	p.files[file] = struct{}{}
}

// keys validates the projection of a secret or config map of a name.
func (p *projection) keys(at *check.Part, name string, items []corev1.KeyToPath) {
	required(at, "name", name)
	for i := range items {
		checkKey(at.Item("items", i), &items[i])
		p.write(items[i].Path, name)
	}
}

// token reports an error of its path as if it were the volume's, as upstream does.
func (p *projection) token(at *check.Part, t *corev1.ServiceAccountTokenProjection) {
	switch e := t.ExpirationSeconds; {
	case e == nil:
		at.Required("expirationSeconds", "")
	case *e < 10*60:
		at.Invalid("expirationSeconds", *e, "may not specify a duration less than 10 minutes")
	case *e > 1<<32:
		at.Invalid("expirationSeconds", *e, "may not specify a duration larger than 2^32 seconds")
	}
	if t.Path == "" {
		p.Required("path", "")
	} else {
		checkFilePath(p.Part, "path", t.Path)
	}
	checkUser(at, "user", t.User)
}

func (p *projection) trustBundle(at *check.Part, b *corev1.ClusterTrustBundleProjection) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		at.Invalid("", check.Internal(b), "only one of name and signerName may be used")
	case b.Name != nil:
		checkBundleName(at, *b.Name)
		if b.LabelSelector != nil {
			at.Invalid("labelSelector", b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			at.Required("signerName", "must be a valid signer name")
		}
		signer.Name(at, *b.SignerName)
		at.Selector("labelSelector", b.LabelSelector, metav1validation.LabelSelectorValidationOptions{})
	default:
		at.Required("", "either name or signerName must be specified")
	}
	required(at, "path", b.Path)
	checkUser(at, "user", b.User)
	checkFilePath(at, "path", b.Path)
	p.writeAny(b.Path, b.Path)
}

// checkBundleName validates the name of a trust bundle. The name of a signer's bundle begins with the signer's name, with
// colons for slashes.
func checkBundleName(at *check.Part, name string) {
	if name == "" {
		at.Required("name", "must be a valid object name")
	}
	owner := ""
	if colon := strings.LastIndex(name, ":"); colon >= 0 {
		owner = strings.ReplaceAll(name[:colon], ":", "/")
	}
	for _, msg := range signer.BundleName(owner, name, false) {
		at.Invalid("name", name, "not a valid clustertrustbundlename: "+msg)
	}
}

// keyTypes are the key types of a pod certificate.
var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (p *projection) certificate(at *check.Part, c *corev1.PodCertificateProjection) {
	signer.Name(at, c.SignerName)
	signer.UserAnnotations(at, "userAnnotations", c.UserAnnotations)
	checkUser(at, "user", c.User)
	check.OneOf(at, "keyType", c.KeyType, keyTypes...)
	if s := c.MaxExpirationSeconds; s != nil {
		checkCertificateLife(at, *s, c.SignerName)
	}
	paths := []struct{ name, file string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath}}
	count := 0
	for _, f := range paths {
		if f.file != "" {
			count++
			checkFilePath(at, f.name, f.file)
			p.write(f.file, f.file)
		}
	}
	if count == 0 {
		at.Required("", "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

func checkCertificateLife(at *check.Part, seconds int32, signerName string) {
	if seconds < signer.MinLife {
		at.Invalid("maxExpirationSeconds", seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", signer.MinLife))
	}
	limit := signer.MaxLife(signerName)
	check.AtMost(at, "maxExpirationSeconds", seconds, limit, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", limit))
}
