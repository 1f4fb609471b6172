package apiserver

import "skiff/internal/apiserver/admission/policy/typecheck"

// checkPolicyTypes checks the types of the expressions of ValidatingAdmissionPolicies from when the server is ready until it stops.
func (s *Server) checkPolicyTypes() {
	loop := typecheck.NewLoop(s.loopback, typecheck.BuiltIn(), s.opts.Log)
	s.background.Go(func() {
		if s.WaitReady(s.stopping) == nil {
			loop.Run(s.stopping)
		}
	})
}
