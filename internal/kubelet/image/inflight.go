package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inflightPull is a pull in flight. Requests for the same image with the same credentials wait for it.
type inflightPull struct {
	done    chan struct{} // closed when result is set
	waiting int           // how many requests wait for it
	cancel  context.CancelFunc
	result  pullResult
}

// pullResult is the result of a pull.
type pullResult struct {
	image Image
	size  uint64
	took  time.Duration
	err   error
}

// joinPull pulls an image, or waits for a pull of it in flight. The pull is canceled when no request waits for it any more.
func (p *Puller) joinPull(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []Credentials, sandbox *runtimeapi.PodSandboxConfig) pullResult {
	name := fmt.Sprintf("%s\n%q", spec.Image, credentials)
	p.mu.Lock()
	f := p.inflight[name]
	if f == nil {
		to, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &inflightPull{done: make(chan struct{}), cancel: cancel}
		p.inflight[name] = f
		go func() {
			defer cancel()
			f.result = p.pullNow(to, spec, credentials, sandbox)
			p.mu.Lock()
			if p.inflight[name] == f {
				delete(p.inflight, name)
			}
			p.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiting++
	p.mu.Unlock()
	select {
	case <-f.done:
		return f.result
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if p.inflight[name] == f {
			delete(p.inflight, name)
		}
	}
	return pullResult{err: ctx.Err()}
}

// pullNow pulls an image once fewer than Options.Parallel pulls run.
func (p *Puller) pullNow(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []Credentials, sandbox *runtimeapi.PodSandboxConfig) (got pullResult) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return pullResult{err: ctx.Err()}
	}
	start := time.Now()
	var used *Credentials
	if used, got.err = p.tryAll(ctx, spec, credentials, sandbox); got.err != nil {
		return got
	}
	got.took = time.Since(start)
	status, err := p.options.Runtime.ImageStatus(ctx, spec)
	switch {
	case err != nil:
		got.err = err
	case status == nil:
		got.err = errRemoved
	default:
		got.image, got.size = of(status), status.Size
		got.err = p.records.add(status.Id, used)
	}
	return got
}

// tryAll tries all credentials until one succeeds, and returns that; nil if there are none.
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
