package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// call is one call of the CNI plugin, as internal/bundle/build/skiff-cni.c passes it on.
type call struct {
	command string
	owner
	namespace string
	config    pluginConfig
}

// pluginConfig is the plugin's configuration: MTU and Ranges as Config.list writes them, the rest as the CNI library adds it.
type pluginConfig struct {
	CNIVersion string            `json:"cniVersion"`
	Name       string            `json:"name"`
	MTU        int               `json:"mtu"`
	Ranges     []netip.Prefix    `json:"ranges"`
	PrevResult *result           `json:"prevResult"`
	Valid      []validAttachment `json:"cni.dev/valid-attachments"`
}

// validAttachment is an attachment that GC must keep.
type validAttachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// result is the CNI result of ADD.
type result struct {
	CNIVersion string        `json:"cniVersion"`
	Interfaces []resultLink  `json:"interfaces"`
	IPs        []resultIP    `json:"ips"`
	Routes     []resultRoute `json:"routes"`
}

type resultLink struct {
	Name    string `json:"name"`
	Mac     string `json:"mac,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

type resultIP struct {
	Interface *int         `json:"interface,omitempty"`
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway"`
}

type resultRoute struct {
	Dst netip.Prefix `json:"dst"`
}

// callError is the CNI result of a failed call.
type callError struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
}

func (e *callError) Error() string { return e.Msg }

// The error codes of the CNI specification; codeInternal is from the range for plugins.
const (
	codeVersion     = 1
	codeEnvironment = 4
	codeDecoding    = 6
	codeConfig      = 7
	codeUnavailable = 50
	codeInternal    = 999
)

func refuse(code int, format string, args ...any) error {
	return &callError{Code: code, Msg: fmt.Sprintf(format, args...)}
}

var versions = []string{"1.0.0", "1.1.0"}

var sandboxName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// parseCall reads a call: command, sandbox, namespace and link, each ended by a zero byte, and the configuration.
func parseCall(data []byte) (c call, err error) {
	parts := strings.SplitN(string(data), "\x00", 5)
	if len(parts) != 5 {
		return c, refuse(codeDecoding, "%d parts instead of 5 came from the CNI plugin", len(parts))
	}
	c = call{command: parts[0], owner: owner{parts[1], parts[3]}, namespace: parts[2]}
	if err := json.Unmarshal([]byte(parts[4]), &c.config); err != nil {
		return c, refuse(codeDecoding, "the network's configuration: %v", err)
	}
	if !slices.Contains(versions, c.config.CNIVersion) {
		return c, refuse(codeVersion, "cniVersion %q is not one of %s", c.config.CNIVersion, strings.Join(versions, ", "))
	}
	switch c.command {
	case "ADD", "DEL", "CHECK":
		return c, c.validate()
	case "STATUS", "GC":
		if c.config.CNIVersion == "1.0.0" {
			return c, refuse(codeVersion, "cniVersion 1.0.0 has no %s", c.command)
		}
		return c, nil
	}
	return c, refuse(codeEnvironment, "CNI_COMMAND %q is not known", c.command)
}

func (c call) validate() error {
	if !sandboxName.MatchString(c.sandbox) {
		return refuse(codeEnvironment, "CNI_CONTAINERID %q is not the name of a container", c.sandbox)
	}
	if l := c.link; l == "" || len(l) > 15 || l == "." || l == ".." || strings.ContainsAny(l, "/: \t\r\n\v\f") {
		return refuse(codeEnvironment, "CNI_IFNAME %q cannot be the name of a link", l)
	}
	if c.namespace == "" && c.command != "DEL" {
		return refuse(codeEnvironment, "CNI_NETNS is missing")
	}
	return nil
}

// checkRanges returns an error if pods cannot get addresses from the ranges, or if the MTU is impossible.
func (c pluginConfig) checkRanges() error {
	if len(c.Ranges) == 0 || len(c.Ranges) > 2 {
		return refuse(codeConfig, "the network has %d ranges of addresses, not one or one of each family", len(c.Ranges))
	}
	for _, r := range c.Ranges {
		if !r.IsValid() || r.Bits() > r.Addr().BitLen()-2 || r != r.Masked() {
			return refuse(codeConfig, "%s is no range of addresses, or too small", r)
		}
	}
	if len(c.Ranges) == 2 && c.Ranges[0].Addr().Is4() == c.Ranges[1].Addr().Is4() {
		return refuse(codeConfig, "both ranges of addresses are of one family")
	}
	if c.MTU < 0 || c.MTU > 65535 {
		return refuse(codeConfig, "the MTU %d is not possible", c.MTU)
	}
	return nil
}

// do executes a call and returns the CNI result, if the command has one.
func (s *Server) do(c call) (any, error) {
	switch c.command {
	case "ADD":
		return s.add(c)
	case "DEL":
		return nil, s.del(c.owner, c.namespace)
	case "CHECK":
		return nil, s.check(c)
	case "GC":
		return nil, s.gc(c)
	}
	return nil, s.status(c)
}

// add attaches a pod. If it fails it leaves neither a link nor addresses behind.
func (s *Server) add(c call) (any, error) {
	if err := c.config.checkRanges(); err != nil {
		return nil, err
	}
	defer s.lockOwner(c.owner)()
	a := &attachment{owner: c.owner, namespace: c.namespace, mtu: c.config.MTU, ranges: c.config.Ranges}
	var err error
	if a.addresses, err = s.addresses.reserve(c.owner, a.ranges); err != nil {
		return nil, err
	}
	if err := s.links.attach(a); err != nil {
		return nil, errors.Join(err, s.addresses.release(c.owner))
	}
	r := &result{CNIVersion: c.config.CNIVersion, Interfaces: []resultLink{
		{Name: a.outer, Mac: a.outerHardware.String()},
		{Name: a.link, Mac: a.hardware.String(), Sandbox: a.namespace},
	}}
	inPod := 1 // the index of the pod's end in Interfaces
	for i, address := range a.addresses {
		gw := gateway(a.ranges[i])
		r.IPs = append(r.IPs, resultIP{Interface: &inPod, Address: netip.PrefixFrom(address, a.ranges[i].Bits()), Gateway: gw})
		r.Routes = append(r.Routes, resultRoute{Dst: netip.PrefixFrom(gw, 0).Masked()})
	}
	return r, nil
}

// del detaches a pod. Its addresses are released last, so that no other pod gets one while packets to it still reach this pod.
func (s *Server) del(o owner, namespace string) error {
	defer s.lockOwner(o)()
	if err := s.links.detach(o, namespace); err != nil {
		return err
	}
	return s.addresses.release(o)
}

// gc detaches all attachments but those that the runtime lists as valid.
func (s *Server) gc(c call) (failed error) {
	for _, o := range s.addresses.all() {
		if !slices.Contains(c.config.Valid, validAttachment{o.sandbox, o.link}) {
			failed = errors.Join(failed, s.del(o, ""))
		}
	}
	return failed
}

// status returns an error if no pod can be attached.
func (s *Server) status(c call) error {
	if err := c.config.checkRanges(); err != nil {
		return err
	}
	if err := s.addresses.checkFree(c.config.Ranges); err != nil {
		return refuse(codeUnavailable, "%v", err)
	}
	return nil
}
