package pod

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"

	"skiff/internal/catalog/check"
)

const (
	maxSysctlLength   = 253
	maxAppArmorLength = 4095 // the longest path on Linux
)

var (
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlName    = regexp.MustCompile("^(" + sysctlSegment + "[\\./])*" + sysctlSegment + "$")

	fsGroupPolicies            = []corev1.PodFSGroupChangePolicy{corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch}
	supplementalGroupsPolicies = []corev1.SupplementalGroupsPolicy{corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict}
	seLinuxPolicies            = []corev1.PodSELinuxChangePolicy{corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive}
	procMounts                 = []corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount}
	seccompTypes               = []corev1.SeccompProfileType{corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined}
	appArmorTypes              = []corev1.AppArmorProfileType{corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}
)

// podSecurityContext validates the security context of a pod.
func (r *rules) podSecurityContext(p *check.Part) {
	s := r.spec.SecurityContext
	if s == nil {
		return
	}
	p = p.Child("securityContext")
	ids(p, "fsGroup", s.FSGroup, utilvalidation.IsValidGroupID)
	ids(p, "runAsUser", s.RunAsUser, utilvalidation.IsValidUserID)
	ids(p, "runAsGroup", s.RunAsGroup, utilvalidation.IsValidGroupID)
	for i, id := range s.SupplementalGroups {
		for _, msg := range utilvalidation.IsValidGroupID(id) {
			p.Add(field.Invalid(p.Path("supplementalGroups").Index(i), id, msg))
		}
	}
	r.sysctls(p, s.Sysctls)
	if s.FSGroupChangePolicy != nil {
		check.OneOf(p, "fsGroupChangePolicy", *s.FSGroupChangePolicy, fsGroupPolicies...)
	}
	checkSeccomp(p, s.SeccompProfile)
	windowsOptions(p, s.WindowsOptions)
	checkAppArmor(p.Child("appArmorProfile"), s.AppArmorProfile)
	if s.SupplementalGroupsPolicy != nil {
		check.OneOf(p, "supplementalGroupsPolicy", *s.SupplementalGroupsPolicy, supplementalGroupsPolicies...)
	}
	if s.SELinuxChangePolicy != nil {
		check.OneOf(p, "seLinuxChangePolicy", *s.SELinuxChangePolicy, seLinuxPolicies...)
	}
}

// securityContext validates the security context of a container.
func (r *rules) securityContext(p *check.Part, s *corev1.SecurityContext) {
	ids(p, "runAsUser", s.RunAsUser, utilvalidation.IsValidUserID)
	ids(p, "runAsGroup", s.RunAsGroup, utilvalidation.IsValidGroupID)
	if s.ProcMount != nil {
		check.OneOf(p, "procMount", *s.ProcMount, procMounts...)
		if r.hostUsers() && *s.ProcMount == corev1.UnmaskedProcMount {
			p.Invalid("procMount", s.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	checkSeccomp(p, s.SeccompProfile)
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if is(s.Privileged) {
			p.Invalid("", check.Internal(s), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if addsSysAdmin(s) && !r.allow.sysAdminWithoutEscalation {
			p.Invalid("", check.Internal(s), "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	windowsOptions(p, s.WindowsOptions)
	checkAppArmor(p.Child("appArmorProfile"), s.AppArmorProfile)
}

func addsSysAdmin(s *corev1.SecurityContext) bool {
	if s == nil || s.Capabilities == nil {
		return false
	}
	for _, c := range s.Capabilities.Add {
		if c == "CAP_SYS_ADMIN" {
			return true
		}
	}
	return false
}

func ids(p *check.Part, name string, id *int64, rule func(int64) []string) {
	if id == nil {
		return
	}
	for _, msg := range rule(*id) {
		p.Invalid(name, *id, msg)
	}
}

func (r *rules) sysctls(p *check.Part, list []corev1.Sysctl) {
	for i, s := range list {
		at := p.Item("sysctls", i)
		switch {
		case s.Name == "":
			at.Required("name", "")
		case len(s.Name) > maxSysctlLength || !sysctlName.MatchString(s.Name):
			at.Invalid("name", s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlLength, sysctlName))
		case hasSysctl(list[:i], s.Name):
			at.Add(field.Duplicate(at.Path("name"), s.Name))
		}
		if !r.allow.hostSysctls {
			r.hostSysctl(at, s.Name)
		}
	}
}

func hasSysctl(list []corev1.Sysctl, name string) bool {
	for _, s := range list {
		if s.Name == name {
			return true
		}
	}
	return false
}

// hostSysctl refuses a sysctl of a namespace that the pod shares with the host: it would change the host.
func (r *rules) hostSysctl(p *check.Part, name string) {
	switch ns, _, _ := sysctl.GetNamespace(name); {
	case r.spec.HostNetwork && ns == sysctl.NetNamespace:
		p.Invalid("name", name, "may not be specified when 'hostNetwork' is true")
	case r.spec.HostIPC && ns == sysctl.IPCNamespace:
		p.Invalid("name", name, "may not be specified when 'hostIPC' is true")
	}
}

func (r *rules) hostSysctls(p *check.Part) {
	if r.spec.SecurityContext == nil {
		return
	}
	for _, s := range r.spec.SecurityContext.Sysctls {
		r.hostSysctl(p, s.Name)
	}
}

func checkSeccomp(p *check.Part, s *corev1.SeccompProfile) {
	if s == nil {
		return
	}
	p = p.Child("seccompProfile")
	if s.Type == "" {
		p.Required("type", "type is required when seccompProfile is set")
	} else {
		check.OneOf(p, "type", s.Type, seccompTypes...)
	}
	switch local := s.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && s.LocalhostProfile == nil:
		p.Required("localhostProfile", "must be set when seccomp type is Localhost")
	case local:
		descending(p, "localhostProfile", *s.LocalhostProfile)
	case s.LocalhostProfile != nil:
		p.Invalid("localhostProfile", check.Internal(s), "can only be set when seccomp type is Localhost")
	}
}

func checkAppArmor(p *check.Part, a *corev1.AppArmorProfile) {
	if a == nil {
		return
	}
	switch a.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		localAppArmor(p, a.LocalhostProfile)
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if a.LocalhostProfile != nil {
			p.Invalid("localhostProfile", a.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		p.Required("type", "type is required when appArmorProfile is set")
	default:
		check.OneOf(p, "type", a.Type, appArmorTypes...)
	}
}

func localAppArmor(p *check.Part, name *string) {
	const required = "must be set when AppArmor type is Localhost"
	if name == nil {
		p.Required("localhostProfile", required)
		return
	}
	switch strings.TrimSpace(*name) {
	case *name:
		p.Present("localhostProfile", *name != "", required)
	default:
		p.Invalid("localhostProfile", *name, "must not be padded with whitespace")
	}
	if len(*name) > maxAppArmorLength {
		p.Add(field.TooLong(p.Path("localhostProfile"), "", maxAppArmorLength))
	}
}

// userNamespace checks that a pod with its own user namespace shares no other namespace with the host.
func (r *rules) userNamespace(p *check.Part) {
	if r.hostUsers() {
		return
	}
	const why = "when `hostUsers` is false"
	if r.spec.HostNetwork && !r.allow.userNamespaceHostNetwork {
		p.Forbidden("hostNetwork", why)
	}
	if r.spec.HostPID {
		p.Forbidden("HostPID", why)
	}
	if r.spec.HostIPC {
		p.Forbidden("HostIPC", why)
	}
	for at, c := range containers(r.spec) {
		if len(c.VolumeDevices) > 0 && !r.allow.userNamespaceDevices {
			at.in(p).Forbidden("volumeDevices", why)
		}
	}
}
