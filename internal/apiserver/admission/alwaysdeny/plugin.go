package alwaysdeny

import (
	"context"
	"errors"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

func (plugin) Name() string { return "AlwaysDeny" }

func (plugin) Handles(*admission.Attributes) bool { return true }

// Admit refuses the write.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	return a.Forbidden(errors.New("admission control is denying all modifications"))
}

// Validate refuses the write.
func (p plugin) Validate(ctx context.Context, a *admission.Attributes) error { return p.Admit(ctx, a) }
