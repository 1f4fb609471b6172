package podcertificate

import (
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// abandonAfter is how long a request that was created and is not observed is waited for; then it was deleted.
	abandonAfter = 10 * time.Minute
	// overdueAfter is how long after its time a certificate that is not renewed is overdue.
	overdueAfter = 10 * time.Minute
	// maxJitter bounds what is added to times, so that not all certificates of a node are renewed at once.
	maxJitter = 5 * time.Minute
)

// state is the state of one certificate. The zero state has none, and none was asked for.
type state struct {
	keyPEM, chain       []byte // what the volume shows; nil before the first certificate
	refreshAt, notAfter time.Time

	awaited   *awaited
	refused   error  // the signer's final answer
	refusedAs string // "denied" or "failed", as metrics have it

	warnedOverdue, warnedExpired bool
}

// awaited is a request that was created.
type awaited struct {
	name      string
	keyPEM    []byte
	abandonAt time.Time
}

// event is an Event about the pod, a warning.
type event struct{ reason, message string }

// errNotIssued is returned as long as there is no certificate.
var errNotIssued = errors.New("credential bundle is not issued yet")

// observe takes the awaited request as it was observed, nil if it was not, and returns whether to create a request now. jitter is added to the time at
// which the certificate is to be renewed.
func (s *state) observe(request *certificatesv1.PodCertificateRequest, now time.Time, jitter time.Duration) (ask bool, events []event) {
	if s.refused != nil {
		return false, nil
	}
	if s.awaited != nil {
		if request == nil && now.After(s.awaited.abandonAt) {
			s.awaited = nil
		} else if request != nil {
			events = s.answer(request, jitter)
		}
	}
	if s.chain != nil && s.refused == nil {
		events = append(events, s.warn(now)...)
	}
	return s.refused == nil && s.awaited == nil && (s.chain == nil || !now.Before(s.refreshAt)), events
}

// answer takes what the signer says about the awaited request, if it has said anything.
func (s *state) answer(request *certificatesv1.PodCertificateRequest, jitter time.Duration) []event {
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			*s = state{keyPEM: s.awaited.keyPEM, chain: withoutComments(request.Status.CertificateChain)}
			if at := request.Status.BeginRefreshAt; at != nil {
				s.refreshAt = at.Add(jitter)
			}
			if at := request.Status.NotAfter; at != nil {
				s.notAfter = at.Time
			}
			return nil
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			return s.refuse(request, c.Type, "was denied", "denied", c.Reason, c.Message)
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			return s.refuse(request, c.Type, "failed", "failed", c.Reason, c.Message)
		}
	}
	return nil
}

func (s *state) refuse(request *certificatesv1.PodCertificateRequest, kind, what, as, reason, message string) []event {
	s.awaited, s.refusedAs = nil, as
	s.refused = fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", as, reason, message)
	return []event{{kind, fmt.Sprintf("PodCertificateRequest %s/%s %s, reason=%q, message=%q", request.Namespace, request.Name, what, reason, message)}}
}

// warn returns the Events about a certificate that should have been renewed by now, each once.
func (s *state) warn(now time.Time) (events []event) {
	if !s.warnedOverdue && now.After(s.refreshAt.Add(overdueAfter)) {
		s.warnedOverdue = true
		events = append(events, event{"CertificateOverdueForRefresh", "PodCertificate refresh overdue"})
	}
	if !s.warnedExpired && now.After(s.notAfter) {
		s.warnedExpired = true
		events = append(events, event{"CertificateExpired", "PodCertificate expired"})
	}
	return events
}

// asked notes that a request was created.
func (s *state) asked(request *certificatesv1.PodCertificateRequest, keyPEM []byte, jitter time.Duration) {
	s.awaited = &awaited{name: request.Name, keyPEM: keyPEM, abandonAt: request.CreationTimestamp.Add(abandonAfter + jitter)}
}

// shown returns what the volume shows, or why it shows nothing. A certificate that was refused when it was to be renewed is not shown any more either.
func (s *state) shown() (keyPEM, chain []byte, err error) {
	switch {
	case s.refused != nil:
		return nil, nil, s.refused
	case s.chain == nil:
		return nil, nil, errNotIssued
	}
	return s.keyPEM, s.chain, nil
}

// name returns the name of the state in metrics.
func (s *state) name(now time.Time) string {
	switch {
	case s.refused != nil:
		return s.refusedAs
	case s.chain == nil:
		return "not_yet_issued"
	case now.After(s.notAfter):
		return "expired"
	case now.After(s.refreshAt.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}
