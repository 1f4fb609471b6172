package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flight is a pull that is under way. Whoever wants the same image with the same credentials meanwhile waits for it.
type flight struct {
	done    chan struct{}
	waiting int
	cancel  context.CancelFunc
	got     landed
}

// landed is how a pull went.
type landed struct {
	image Image
	size  uint64
	took  time.Duration
	err   error
}

// join pulls an image, or waits for a pull of it. The pull ends when nobody waits for it any more.
func (p *Puller) join(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []Credentials, sandbox *runtimeapi.PodSandboxConfig) landed {
	name := fmt.Sprintf("%s\n%q", spec.Image, credentials)
	p.mu.Lock()
	f := p.flights[name]
	if f == nil {
		to, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		p.flights[name] = f
		go func() {
			defer cancel()
			f.got = p.fly(to, spec, credentials, sandbox)
			p.mu.Lock()
			if p.flights[name] == f {
				delete(p.flights, name)
			}
			p.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiting++
	p.mu.Unlock()
	select {
	case <-f.done:
		return f.got
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if p.flights[name] == f {
			delete(p.flights, name)
		}
	}
	return landed{err: ctx.Err()}
}

func (p *Puller) fly(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []Credentials, sandbox *runtimeapi.PodSandboxConfig) (got landed) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return landed{err: ctx.Err()}
	}
	start := time.Now()
	var with *Credentials
	if with, got.err = p.tryAll(ctx, spec, credentials, sandbox); got.err != nil {
		return got
	}
	got.took = time.Since(start)
	there, err := p.options.Runtime.ImageStatus(ctx, spec)
	switch {
	case err != nil:
		got.err = err
	case there == nil:
		got.err = errGone
	default:
		got.image, got.size = of(there), there.Size
		got.err = p.records.add(there.Id, with)
	}
	return got
}

// tryAll tries all credentials until some are right, and returns those; nil if none are needed.
func (p *Puller) tryAll(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []Credentials, sandbox *runtimeapi.PodSandboxConfig) (*Credentials, error) {
	if len(credentials) == 0 {
		_, err := p.options.Runtime.PullImage(ctx, spec, nil, sandbox)
		return nil, err
	}
	server, err := serverOf(spec.Image)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range credentials {
		_, err := p.options.Runtime.PullImage(ctx, spec, &runtimeapi.AuthConfig{Username: c.Username, Password: c.Password, ServerAddress: server}, sandbox)
		if err == nil {
			return &c, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, aggregate(errs)
}

// aggregate joins errors as Kubernetes does: each once, in brackets.
func aggregate(errs []error) error {
	seen, text := map[string]bool{}, ""
	for _, err := range errs {
		if s := err.Error(); !seen[s] {
			if seen[s] = true; text != "" {
				text += ", "
			}
			text += s
		}
	}
	if len(seen) > 1 {
		text = "[" + text + "]"
	}
	return errors.New(text)
}
