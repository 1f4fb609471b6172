package pod

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/catalog/check"
)

const (
	maxCredentialSpecKiB = 64
	maxUserDomainLength  = 256
	maxUserLength        = 104
)

var (
	operatingSystems = []corev1.OSName{corev1.Linux, corev1.Windows}

	controlCharacters = regexp.MustCompile(`[[:cntrl:]]`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	dnsName           = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
)

// operatingSystem refuses fields that the pod's operating system does not support.
func (r *rules) operatingSystem(p *check.Part) {
	os := r.spec.OS
	switch {
	case os == nil:
	case os.Name == "":
		p.Child("os").Required("name", "")
	case os.Name == corev1.Linux:
		r.linux(p)
	case os.Name == corev1.Windows:
		r.windows(p)
	default:
		check.OneOf(p, "os", os.Name, operatingSystems...)
	}
}

func (r *rules) linux(p *check.Part) {
	const why = "windows options cannot be set for a linux pod"
	if s := r.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		p.Child("securityContext").Forbidden("windowsOptions", why)
	}
	for at, c := range containers(r.spec) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			at.in(p).Child("securityContext").Forbidden("windowsOptions", why)
		}
	}
}

// onlyLinux is a field that is not supported on Windows.
type onlyLinux struct {
	name string
	set  bool
}

func (r *rules) windows(p *check.Part) {
	spec := r.spec
	if s := spec.SecurityContext; s != nil {
		forbidOnWindows(p.Child("securityContext"),
			onlyLinux{"appArmorProfile", s.AppArmorProfile != nil},
			onlyLinux{"seLinuxOptions", s.SELinuxOptions != nil},
			onlyLinux{"seccompProfile", s.SeccompProfile != nil},
			onlyLinux{"fsGroup", s.FSGroup != nil},
			onlyLinux{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil},
			onlyLinux{"sysctls", len(s.Sysctls) > 0},
			onlyLinux{"runAsUser", s.RunAsUser != nil},
			onlyLinux{"runAsGroup", s.RunAsGroup != nil},
			onlyLinux{"supplementalGroups", s.SupplementalGroups != nil},
			onlyLinux{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil},
			onlyLinux{"seLinuxChangePolicy", s.SELinuxChangePolicy != nil})
	}
	forbidOnWindows(p,
		onlyLinux{"hostUsers", spec.HostUsers != nil},
		onlyLinux{"hostPID", spec.HostPID},
		onlyLinux{"hostIPC", spec.HostIPC},
		onlyLinux{"shareProcessNamespace", spec.ShareProcessNamespace != nil})
	for at, c := range containers(spec) {
		if s := c.SecurityContext; s != nil {
			forbidOnWindows(at.in(p).Child("securityContext"),
				onlyLinux{"appArmorProfile", s.AppArmorProfile != nil},
				onlyLinux{"seLinuxOptions", s.SELinuxOptions != nil},
				onlyLinux{"seccompProfile", s.SeccompProfile != nil},
				onlyLinux{"capabilities", s.Capabilities != nil},
				onlyLinux{"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil},
				onlyLinux{"privileged", s.Privileged != nil},
				onlyLinux{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil},
				onlyLinux{"procMount", s.ProcMount != nil},
				onlyLinux{"runAsUser", s.RunAsUser != nil},
				onlyLinux{"runAsGroup", s.RunAsGroup != nil})
		}
	}
}

func forbidOnWindows(p *check.Part, fields ...onlyLinux) {
	for _, f := range fields {
		if f.set {
			p.Forbidden(f.name, "cannot be set for a windows pod")
		}
	}
}

// hostProcess checks that either all containers of a Windows pod are host process containers, or none.
func (r *rules) hostProcess(p *check.Part) {
	var pod *bool
	if s := r.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		pod = s.WindowsOptions.HostProcess
	}
	all, onHost := 0, 0
	for at, c := range containers(r.spec) {
		all++
		hostProcess := pod
		if s := c.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			hostProcess = s.WindowsOptions.HostProcess
		}
		if pod != nil && *hostProcess != *pod {
			at.in(p).Child("securityContext").Child("windowsOptions").
				Invalid("hostProcess", *hostProcess, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod))
		}
		if is(hostProcess) {
			onHost++
		}
	}
	if onHost == 0 {
		return
	}
	if onHost != all {
		p.Invalid("", "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !r.spec.HostNetwork {
		p.Invalid("hostNetwork", false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

func windowsOptions(p *check.Part, w *corev1.WindowsSecurityContextOptions) {
	if w == nil {
		return
	}
	p = p.Child("windowsOptions")
	if name := w.GMSACredentialSpecName; name != nil {
		for _, msg := range utilvalidation.IsDNS1123Subdomain(*name) {
			p.Invalid("gmsaCredentialSpecName", name, msg)
		}
	}
	if spec := w.GMSACredentialSpec; spec != nil {
		switch n := len(*spec); {
		case n == 0:
			p.Invalid("gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
		case n > maxCredentialSpecKiB*1024:
			p.Invalid("gmsaCredentialSpec", spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpecKiB))
		}
	}
	if w.RunAsUserName != nil {
		for _, msg := range userNameErrors(*w.RunAsUserName) {
			p.Invalid("runAsUserName", w.RunAsUserName, "runAsUserName"+msg)
		}
	}
}

// userNameErrors returns what is wrong with the name of a Windows user: USER or DOMAIN\USER.
func userNameErrors(name string) (msgs []string) {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	switch {
	case name == "":
		return []string{" cannot be an empty string"}
	case controlCharacters.MatchString(name):
		return []string{" cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{" cannot contain more than one backslash"}
	}
	if len(domain) >= maxUserDomainLength {
		msgs = append(msgs, fmt.Sprintf("'s Domain length must be under %d characters", maxUserDomainLength))
	}
	if hasDomain && !netBIOSName.MatchString(domain) && !dnsName.MatchString(domain) {
		msgs = append(msgs, "'s Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		msgs = append(msgs, "'s User cannot be empty")
	} else if len(user) > maxUserLength {
		msgs = append(msgs, fmt.Sprintf("'s User length must not be longer than %d characters", maxUserLength))
	}
	if user != "" && strings.Trim(user, ". ") == "" {
		msgs = append(msgs, "'s User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		msgs = append(msgs, `'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return msgs
}
