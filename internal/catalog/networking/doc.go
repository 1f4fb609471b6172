// Package networking declares how traffic gets in (ingresses and their classes), where it may go (network policies), and the
// addresses of services (service CIDRs and the IP addresses taken from them).
package networking
