package why

import (
	"fmt"
	"regexp"
	"strings"

	"skiff/internal/journey"
)

var (
	byWebhook    = []string{journey.MutatingWebhook, journey.ValidatingWebhook}
	byPolicy     = []string{journey.MutatingPolicy, journey.ValidatingPolicy}
	byConversion = []string{journey.ConversionWebhook}
)

// failed returns the function that finds the failures of some stages with a verdict.
func failed(stages []string, verdict string) func(*subject) []finding {
	return func(s *subject) (found []finding) {
		for i := range s.failures {
			f := &s.failures[i]
			for _, stage := range stages {
				if f.By == stage && f.Verdict == verdict {
					found = append(found, finding{sentence(f), s.evidence(f)})
				}
			}
		}
		return found
	}
}

// sentence says what refused or failed, and what came of it.
func sentence(f *journey.Failure) string {
	p := problemOf(f.Message)
	switch {
	case f.By == journey.ConversionWebhook:
		return fmt.Sprintf("The conversion webhook of %s %s: objects cannot be converted from %s.", f.Name, p, f.Configuration)
	case f.Verdict == journey.Denied:
		return ended(fmt.Sprintf("%s refused %s: %s", caller(f), request(f), reason(f)))
	case f.Verdict == journey.Failed:
		return fmt.Sprintf("%s %s; its failure policy Fail refused %s.", caller(f), p, request(f))
	case f.Verb == "create":
		return fmt.Sprintf("%s %s; its failure policy Ignore let %s be created without it.", caller(f), p, request(f))
	}
	return fmt.Sprintf("%s %s; its failure policy Ignore let %s pass without it.", caller(f), p, request(f))
}

// ended ends a sentence.
func ended(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// caller names the webhook or policy.
func caller(f *journey.Failure) string {
	within := "configuration"
	if f.By == journey.MutatingPolicy || f.By == journey.ValidatingPolicy {
		within = "binding"
	}
	s := fmt.Sprintf("The %s %q", f.By, f.Name)
	if f.Configuration != "" {
		s += fmt.Sprintf(" (%s %q)", within, f.Configuration)
	}
	return s
}

// doings are what a user calls the requests whose verb is not the whole story.
var doings = map[string]string{"update": "the update of ", "patch": "the patch of ", "delete": "the deletion of ", "deletecollection": "the deletion of "}

// request says what was refused: an object that was to be created, or what was to be done with it.
func request(f *journey.Failure) string {
	resource, sub, _ := strings.Cut(f.Resource, "/")
	name := f.Object
	if name == "" && f.GenerateName != "" {
		name = f.GenerateName + "*"
	}
	object := journey.Describe(resource, name)
	switch {
	case sub != "" && f.Verb == "create":
		return "the " + sub + " of " + object
	case sub != "":
		return doings[f.Verb] + "the " + sub + " of " + object
	}
	return doings[f.Verb] + object
}

var refusals = []*regexp.Regexp{
	regexp.MustCompile(`(?s)^admission webhook "[^"]*" denied the request: (.*)$`),
	regexp.MustCompile(`(?s)^admission webhook "[^"]*" denied the request (without explanation)$`),
}

// reason returns why a request was refused, without what the sentence says already.
func reason(f *journey.Failure) string {
	for _, r := range refusals {
		if m := r.FindStringSubmatch(f.Message); m != nil {
			return m[1]
		}
	}
	return f.Message
}

// callErrors are what errors of calls begin with, before the reason.
var callErrors = []*regexp.Regexp{
	regexp.MustCompile(`^failed calling webhook "[^"]*": `),
	regexp.MustCompile(`^failed to call webhook: `),
	regexp.MustCompile(`^conversion webhook for [^=]*Kind=\S+ (failed: )?`),
	regexp.MustCompile(`^Post "[^"]*": `),
	regexp.MustCompile(`^dial tcp \S+: (connect: )?`),
	regexp.MustCompile(`^dial tcp: `),
}

// problems are what goes wrong with a call, by a part of the text.
var problems = []struct{ part, says string }{
	{"dial tcp", "could not be reached"},
	{"no endpoints available", "could not be reached"},
	{"no service port", "could not be reached"},
	{`service "`, "could not be reached"},
	{"deadline exceeded", "did not answer in time"},
	{"Client.Timeout", "did not answer in time"},
	{"x509:", "could not be trusted"},
	{"tls:", "could not be trusted"},
	{"expression", "could not be evaluated"},
	{"failed to configure", "could not be applied"},
}

// problemOf returns what went wrong with a call or an evaluation, with the reason in brackets.
func problemOf(message string) string {
	says := "failed"
	for _, p := range problems {
		if strings.Contains(message, p.part) {
			says = p.says
			break
		}
	}
	for _, r := range callErrors {
		message = r.ReplaceAllString(message, "")
	}
	if says == "did not answer in time" {
		return says + " (" + strings.TrimPrefix(message, "context ") + ")"
	}
	return says + " (" + message + ")"
}

// evidence says when it was, how often, and for whom.
func (s *subject) evidence(f *journey.Failure) []string {
	when := ago(s.now, f.Last)
	if f.Count > 1 {
		when = fmt.Sprintf("%d times in %s, the last %s", f.Count, journey.Took(f.Last.Sub(f.First)), when)
	}
	if f.Component != "" {
		when += ", for " + f.Component
		if f.User != "" {
			when += " as " + f.User
		}
	}
	lines := []string{when}
	if f.Verdict != journey.Denied {
		lines = append(lines, "the error: "+f.Message)
	}
	return lines
}
