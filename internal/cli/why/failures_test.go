package why

import (
	"testing"

	"skiff/internal/journey"
)

// TestSentences: what is said of failures, by the text of their errors.
func TestSentences(t *testing.T) {
	call := `failed calling webhook "h": failed to call webhook: `
	for _, c := range []struct {
		f    journey.Failure
		want string
	}{
		{journey.Failure{Verdict: journey.Failed, Verb: "patch", Resource: "deployments.apps", Object: "web", Message: call + `Post "https://h.default.svc:443/?timeout=1s": context deadline exceeded`},
			`The validating webhook "h" (configuration "c") did not answer in time (deadline exceeded); its failure policy Fail refused the patch of deployment.apps/web.`},
		{journey.Failure{Verdict: journey.Failed, Verb: "delete", Resource: "pods", Object: "web", Message: call + `service "h" not found`},
			`The validating webhook "h" (configuration "c") could not be reached (service "h" not found); its failure policy Fail refused the deletion of pod/web.`},
		{journey.Failure{Verdict: journey.FailedOpen, Verb: "update", Resource: "pods/status", Object: "web", Message: call + `Post "https://h:443/": tls: failed to verify certificate: x509: certificate signed by unknown authority`},
			`The validating webhook "h" (configuration "c") could not be trusted (tls: failed to verify certificate: x509: certificate signed by unknown authority); its failure policy Ignore let the update of the status of pod/web pass without it.`},
		{journey.Failure{Verdict: journey.Failed, Verb: "create", Resource: "pods/eviction", Object: "web", Message: `failed calling webhook "h": received invalid webhook response: expected response.uid`},
			`The validating webhook "h" (configuration "c") failed (received invalid webhook response: expected response.uid); its failure policy Fail refused the eviction of pod/web.`},
		{journey.Failure{Verdict: journey.Denied, Verb: "create", Resource: "pods", Object: "web", Message: `admission webhook "h" denied the request without explanation`},
			`The validating webhook "h" (configuration "c") refused pod/web: without explanation.`},
	} {
		c.f.By, c.f.Name, c.f.Configuration = journey.ValidatingWebhook, "h", "c"
		if got := sentence(&c.f); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	refused := journey.Failure{By: journey.ConversionWebhook, Name: "widgets.example.com", Configuration: "v1 to v2", Verdict: journey.Failed, Message: "conversion webhook for example.com/v1, Kind=Widget failed: refused a"}
	if got, want := sentence(&refused), "The conversion webhook of widgets.example.com failed (refused a): objects cannot be converted from v1 to v2."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestToldRefusals: what Events and conditions tell.
func TestToldRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`Error creating: admission webhook "h" denied the request: no`:                                                       `The webhook "h" refused pod/web-*: no.`,
		`Error creating: Internal error occurred: failed calling webhook "h": failed to call webhook: service "h" not found`: `The webhook "h" could not be reached (service "h" not found); its failure policy Fail refused pod/web-*.`,
		`Error creating: pods "web-1" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`:       `The validating policy "p" (binding "b") refused pod/web-*: no.`,
		`Error creating: policy 'p' with binding 'b' denied request: no such key: a`:                                         `The mutating policy "p" (binding "b") failed (no such key: a); its failure policy Fail refused pod/web-*.`,
		`Error creating: pods "web-1" is forbidden: exceeded quota`:                                                          "",
	} {
		got := ""
		if f := parseRefusal(text); f != nil {
			f.Verb, f.Resource, f.GenerateName = "create", "pods", "web-"
			got = sentence(f)
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}
