package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/keyutil"
)

// Leaf is a certificate that the cluster needs: its files, the authority that signs it, and its user or hosts.
type Leaf struct {
	Name      string   // name of its files, without extension: "apiserver", "etcd/server"
	Authority string   // the authority that signs it
	User      string   // common name: the user of a client with it
	Groups    []string // organizations: the user's groups
	Client    bool     // it is a client certificate
	Hosts     []string // names and addresses of a server with it; without any it is not a serving certificate
}

// Leaves that every cluster has, by the names of their files.
const (
	APIServer              = "apiserver"
	APIServerKubeletClient = "apiserver-kubelet-client"
	APIServerEtcdClient    = "apiserver-etcd-client"
	FrontProxyClient       = "front-proxy-client"
	EtcdServer             = "etcd/server"
	EtcdHealthcheckClient  = "etcd/healthcheck-client"
	Admin                  = "admin"
	ControllerManager      = "controller-manager"
	Scheduler              = "scheduler"
	Proxy                  = "proxy"
)

// The leaves of the node that shares the data directory.
const (
	Kubelet       = "kubelet" // the kubelet's serving certificate
	KubeletClient = "kubelet-client"
)

// adminGroup may do everything, whatever RBAC says. kubeadm gives its administrator a group that a ClusterRoleBinding empowers, so
// that removing the binding revokes copies of the file, and a second file with this group for the day the binding is gone. Here
// one file has to work always: before the first object is stored, after a restore, with an authorization mode without RBAC. It lies beside
// the key of the authority, so hiding this group from its reader would hide nothing. No component is in it.
const adminGroup = "system:masters"

// leaves are what every cluster has. No etcd peer certificate is among them: the embedded etcd has no peers.
func (o *Options) leaves() []Leaf {
	etcdHosts := hosts([]string{"localhost", "127.0.0.1", "::1", o.NodeName}, o.Addresses)
	client := func(name, authority, user string, groups ...string) Leaf {
		return Leaf{Name: name, Authority: authority, User: user, Groups: groups, Client: true}
	}
	return []Leaf{
		{Name: APIServer, Authority: CA, User: "kube-apiserver", Hosts: o.apiServerHosts()},
		client(APIServerKubeletClient, CA, "kube-apiserver-kubelet-client"),
		client(FrontProxyClient, FrontProxyCA, "front-proxy-client"),
		client(Admin, CA, "kubernetes-admin", adminGroup),
		client(ControllerManager, CA, "system:kube-controller-manager"),
		client(Scheduler, CA, "system:kube-scheduler"),
		client(Proxy, CA, "system:kube-proxy"),
		// etcd wants its server certificate to be a client's as well: its gateway connects to itself.
		{Name: EtcdServer, Authority: EtcdCA, User: "etcd", Client: true, Hosts: etcdHosts},
		client(EtcdHealthcheckClient, EtcdCA, "kube-etcd-healthcheck-client"),
		client(APIServerEtcdClient, EtcdCA, "kube-apiserver-etcd-client"),
	}
}

// NodeLeaves returns the leaves of a node: its client certificate, and the serving certificate for its name and the given addresses.
func NodeLeaves(node string, addresses ...string) []Leaf {
	user, groups := "system:node:"+node, []string{"system:nodes"}
	return []Leaf{
		{Name: KubeletClient, Authority: CA, User: user, Groups: groups, Client: true},
		{Name: Kubelet, Authority: CA, User: user, Groups: groups, Hosts: hosts([]string{node, "localhost", "127.0.0.1", "::1"}, addresses)},
	}
}

// APIServerHosts returns the names and addresses that the API server's certificate is for.
func (m *Manager) APIServerHosts() []string { return m.o.apiServerHosts() }

func (o *Options) apiServerHosts() []string {
	service := "kubernetes.default.svc"
	names := []string{"kubernetes", "kubernetes.default", service, service + "." + o.Domain, "localhost", "127.0.0.1", "::1", o.NodeName}
	for _, cidr := range o.ServiceCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			names = append(names, p.Masked().Addr().Next().String()) // the kubernetes Service
		}
	}
	return hosts(names, o.Addresses, o.SANs)
}

// hosts joins lists, without entries that are empty, duplicate or unspecified addresses.
func hosts(lists ...[]string) []string {
	var out []string
	for _, host := range slices.Concat(lists...) {
		if ip, err := netip.ParseAddr(host); err == nil {
			if ip.IsUnspecified() {
				continue
			}
			host = ip.Unmap().String()
		}
		if host != "" && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// CheckHost fails if a name or address cannot be in a certificate.
func CheckHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return nil
	}
	problems := validation.IsDNS1123Subdomain(host)
	if strings.HasPrefix(host, "*.") {
		problems = validation.IsWildcardDNS1123Subdomain(host)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%q is neither an IP address nor a DNS name: %s", host, problems[0])
	}
	return nil
}

func (l *Leaf) check() error {
	if !filepath.IsLocal(l.Name) || l.User == "" || !slices.Contains(authorities, l.Authority) {
		return fmt.Errorf("the certificate %q of authority %q for user %q is not well described", l.Name, l.Authority, l.User)
	}
	for _, host := range l.Hosts {
		if err := CheckHost(host); err != nil {
			return err
		}
	}
	return nil
}

func (l *Leaf) usages() []x509.ExtKeyUsage {
	var u []x509.ExtKeyUsage
	if len(l.Hosts) > 0 {
		u = append(u, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		u = append(u, x509.ExtKeyUsageClientAuth)
	}
	return u
}

// issue returns a new certificate and key.
func (a *Authority) issue(l Leaf, now time.Time, life time.Duration) (certPEM, keyPEM []byte, err error) {
	if a.key == nil {
		return nil, nil, errors.New("the key of the authority is not there")
	}
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: l.User, Organization: l.Groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.usages(), BasicConstraintsValid: true,
		NotBefore: now.Add(-min(backdate, life/10)), NotAfter: now.Add(life),
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, host := range l.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return certificatePEM(der), keyPEM, err
}

// pair is a certificate and its key, parsed and in PEM.
type pair struct {
	tls             tls.Certificate
	certPEM, keyPEM []byte
}

// leaf reads a leaf's files, and replaces them if they cannot be used.
func (l *reconciliation) leaf(want Leaf, a *Authority) (*pair, error) {
	path := l.path(want.Name)
	p, err := readPair(path)
	var why string
	usable := false
	if err != nil {
		why = err.Error()
	} else if why, usable = a.judge(want, p.tls.Leaf, l.now); why == "" {
		return p, nil
	}
	if a.key == nil && usable {
		l.log.Warn("a certificate should be replaced, and the key of its authority is not here", "file", path+".crt", "why", why)
		return p, nil
	}
	if a.key == nil {
		authority := l.path(want.Authority)
		return nil, fmt.Errorf("%s.crt and .key cannot be used (%s), and %s.key is not there to sign new ones: put a certificate there for user %q in groups %q "+
			"at %q, or put the authority's key there, or remove %s.crt to have all made anew", path, why, authority, want.User, want.Groups, want.Hosts, authority)
	}
	if !missingOrTorn(err) {
		l.log.Info("renewing a certificate", "file", path+".crt", "why", why)
	}
	p = &pair{}
	if p.certPEM, p.keyPEM, err = a.issue(want, l.now, l.leafLife); err != nil {
		return nil, fmt.Errorf("making %s.crt: %w", path, err)
	}
	if p.tls, err = tls.X509KeyPair(p.certPEM, p.keyPEM); err != nil {
		return nil, err
	}
	l.write(path+".key", p.keyPEM)
	l.write(path+".crt", p.certPEM)
	return p, nil
}

func readPair(path string) (*pair, error) {
	p := &pair{}
	var err error
	if p.certPEM, err = readPEM(path + ".crt"); err != nil {
		return nil, err
	}
	if p.keyPEM, err = readPEM(path + ".key"); err != nil {
		return nil, err
	}
	if p.tls, err = tls.X509KeyPair(p.certPEM, p.keyPEM); err != nil {
		return nil, fmt.Errorf("%s.crt and .key: %w", path, err)
	}
	return p, nil
}

// judge returns why a certificate should be replaced, if it should, and whether it can be used until then.
func (a *Authority) judge(l Leaf, c *x509.Certificate, now time.Time) (why string, usable bool) {
	switch {
	case !bytes.Equal(c.RawIssuer, a.cert.RawSubject) || len(c.AuthorityKeyId) > 0 && !bytes.Equal(c.AuthorityKeyId, a.cert.SubjectKeyId) ||
		c.CheckSignatureFrom(a.cert) != nil:
		return "it is not signed by the authority", false
	case c.Subject.CommonName != l.User || !sameSet(c.Subject.Organization, l.Groups):
		return fmt.Sprintf("it is for user %q in groups %q", c.Subject.CommonName, c.Subject.Organization), false
	case now.Before(c.NotBefore) || !now.Before(c.NotAfter):
		return whyTime(c, now), false
	}
	for _, u := range l.usages() {
		if !slices.Contains(c.ExtKeyUsage, u) && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return "it is for another use", false
		}
	}
	for _, host := range l.Hosts {
		if c.VerifyHostname(host) != nil && !slices.Contains(c.DNSNames, host) { // VerifyHostname does not match a wildcard name with itself
			return "it is not for " + host, false
		}
	}
	// A certificate that expires with its authority gets no longer lifetime by being replaced.
	if !now.Before(renewAt(c)) && c.NotAfter.Before(a.cert.NotAfter) {
		return whyTime(c, now), true
	}
	return "", true
}

// renewAt returns when a certificate is renewed.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(c.NotAfter.Sub(c.NotBefore)/3, renewBefore))
}

func whyTime(c *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(c.NotBefore):
		return "it begins at " + c.NotBefore.Format(time.RFC3339)
	case now.Before(c.NotAfter):
		return "it ends at " + c.NotAfter.Format(time.RFC3339)
	}
	return "it ended at " + c.NotAfter.Format(time.RFC3339)
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
