package address

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IP validates an IP address. Values among kept, which are those of the old object, are accepted as they are.
func IP(value string, kept []string, path *field.Path) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, kept)
}

// CIDR validates a CIDR block. Values among kept, which are those of the old object, are accepted
// as they are.
func CIDR(value string, kept []string, path *field.Path) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, value, true, kept)
}

// IsOrdinary reports whether value is a canonical address that traffic can be sent to, so that neither IP nor
// Endpoint returns an error. It lets callers with many addresses avoid building field paths.
func IsOrdinary(value string) bool {
	ip, err := netip.ParseAddr(value)
	return err == nil && ip.Zone() == "" && !ip.Is4In6() && !ip.IsUnspecified() && !ip.IsLoopback() &&
		!ip.IsLinkLocalUnicast() && !ip.IsLinkLocalMulticast()
}

// Endpoint refuses addresses that cannot belong to another machine: unspecified, loopback and link-local ones.
func Endpoint(value string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(value)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address")}
	}
	var errs field.ErrorList
	for _, rule := range []struct {
		broken bool
		msg    string
	}{
		{ip.IsUnspecified(), "may not be unspecified (" + value + ")"},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if rule.broken {
			errs = append(errs, field.Invalid(path, value, rule.msg))
		}
	}
	return errs
}

// IsCanonical reports whether value is an address in canonical form, so that Warnings returns nothing.
func IsCanonical(value string) bool {
	ip, err := netip.ParseAddr(value)
	return err == nil && !ip.Is4In6() && (ip.Is4() || ip.String() == value)
}

// Warnings returns the warnings for a valid IP address that is not in canonical form.
func Warnings(value string, path *field.Path) []string {
	if IsCanonical(value) || netutils.ParseIPSloppy(value) == nil {
		return nil
	}
	return validation.GetWarningsForIP(path, value)
}

// CIDRWarnings returns the warnings for a valid CIDR block that is not in canonical form.
func CIDRWarnings(value string, path *field.Path) []string {
	if _, _, err := netutils.ParseCIDRSloppy(value); err != nil {
		return nil
	}
	return validation.GetWarningsForCIDR(path, value)
}
