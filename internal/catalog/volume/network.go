package volume

import (
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/catalog/check"
)

// Pod volumes and persistent volumes have different types for some of these sources, which differ in where their
// secrets are; the rules for those take fields instead of the whole source.

func checkNFS(at *check.Part, n *corev1.NFSVolumeSource) {
	required(at, "server", n.Server)
	required(at, "path", n.Path)
	if !path.IsAbs(n.Path) {
		at.Invalid("path", n.Path, "must be an absolute path")
	}
}

const (
	maxISCSIInterface     = 64
	iscsiInterfaceTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)

// iscsiNames are the forms of an iSCSI name, by prefix.
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

type iscsi struct {
	portal, iqn string
	lun         int32
	initiator   *string
	beginning   string // the rest of the message if a name has none of the prefixes

	chap, hasSecret bool
	nameless        bool // whether there is a secret without its required name
}

func checkISCSI(at *check.Part, i iscsi) {
	required(at, "targetPortal", i.portal)
	checkISCSITarget(at, i)
}

// checkISCSITarget validates everything but the portal.
func checkISCSITarget(at *check.Part, i iscsi) {
	if i.iqn == "" {
		at.Required("iqn", "")
	} else {
		checkISCSIName(at, "iqn", i.iqn, i.beginning)
	}
	checkLUN(at, &i.lun, i.lun)
	if i.chap && !i.hasSecret {
		at.Required("secretRef", "")
	}
	if i.nameless {
		at.Child("secretRef").Required("name", "")
	}
	if i.initiator != nil {
		checkISCSIName(at, "initiatorname", *i.initiator, i.beginning)
	}
}

func checkISCSIName(at *check.Part, field, name, beginning string) {
	form := iscsiNames[name[:min(3, len(name))]]
	switch {
	case form == nil:
		at.Invalid(field, name, "must be valid format"+beginning)
	case !form.MatchString(name):
		at.Invalid(field, name, "must be valid format")
	}
}

// checkLUN validates a LUN. Errors show value, which is the number or, where upstream shows it so, a pointer to it.
func checkLUN(at *check.Part, lun *int32, value any) {
	if *lun < 0 || *lun > 255 {
		at.Invalid("lun", value, utilvalidation.InclusiveRangeError(0, 255))
	}
}

func checkFC(at *check.Part, f *corev1.FCVolumeSource) {
	wwns, wwids := len(f.TargetWWNs) > 0, len(f.WWIDs) > 0
	switch {
	case !wwns && !wwids:
		at.Required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
	case wwns && wwids:
		at.Invalid("targetWWNs", f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	switch {
	case wwns && f.Lun == nil:
		at.Required("lun", "lun is required if targetWWNs is specified")
	case wwns:
		checkLUN(at, f.Lun, f.Lun)
	}
}

func checkGlusterfs(at *check.Part, endpoints, path string) {
	required(at, "endpoints", endpoints)
	required(at, "path", path)
}

func checkPersistentGlusterfs(at *check.Part, g *corev1.GlusterfsPersistentVolumeSource) {
	checkGlusterfs(at, g.EndpointsName, g.Path)
	if ns := g.EndpointsNamespace; ns != nil {
		if *ns == "" {
			at.Invalid("endpointsNamespace", *ns, "if the endpointnamespace is set, it must be a valid namespace name")
			return
		}
		at.Format("endpointsNamespace", *ns, isNamespace)
	}
}

func checkRBD(at *check.Part, monitors []string, image string) {
	at.Present("monitors", len(monitors) > 0, "")
	required(at, "image", image)
}

func checkCephFS(at *check.Part, monitors []string) { at.Present("monitors", len(monitors) > 0, "") }

func checkQuobyte(at *check.Part, q *corev1.QuobyteVolumeSource) {
	const form = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case q.Registry == "":
		at.Required("registry", form)
	case len(q.Tenant) >= 65:
		at.Required("tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for _, pair := range strings.Split(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				at.Invalid("registry", q.Registry, form)
			}
		}
	}
	required(at, "volume", q.Volume)
}

func checkFlocker(at *check.Part, f *corev1.FlockerVolumeSource) {
	switch {
	case f.DatasetName == "" && f.DatasetUUID == "":
		at.Required("", "one of datasetName and datasetUUID is required")
	case f.DatasetName != "" && f.DatasetUUID != "":
		at.Invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(f.DatasetName, "/") {
		at.Invalid("datasetName", f.DatasetName, "must not contain '/'")
	}
}

func checkPortworx(at *check.Part, p *corev1.PortworxVolumeSource) {
	required(at, "volumeID", p.VolumeID)
}

func checkScaleIO(at *check.Part, gateway, system, volume string) {
	required(at, "gateway", gateway)
	required(at, "system", system)
	required(at, "volumeName", volume)
}

func checkStorageOS(at *check.Part, volume, namespace string) {
	if volume == "" {
		at.Required("volumeName", "")
	} else {
		at.Format("volumeName", volume, utilvalidation.IsDNS1123Label)
	}
	if namespace != "" {
		at.Format("volumeNamespace", namespace, utilvalidation.IsDNS1123Label)
	}
}

// checkFlex refuses options of a flex volume in Kubernetes' domains, in which the kubelet adds its options.
func checkFlex(at *check.Part, driver string, options map[string]string) {
	required(at, "driver", driver)
	for _, option := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(option, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			at.Add(invalidKey(at.Path("options"), option, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
}

// checkLocalSecret validates a reference to a secret in the pod's namespace.
func checkLocalSecret(at *check.Part, s *corev1.LocalObjectReference) {
	if s != nil {
		required(at.Child("secretRef"), "name", s.Name)
	}
}

// checkSecretReference validates a reference to a secret in any namespace.
func checkSecretReference(at *check.Part, s *corev1.SecretReference) {
	if s != nil {
		required(at.Child("secretRef"), "name", s.Name)
		required(at.Child("secretRef"), "namespace", s.Namespace)
	}
}

func isNamespace(name string) []string { return validation.ValidateNamespaceName(name, false) }

func isSubdomainName(name string) []string { return validation.NameIsDNSSubdomain(name, false) }
