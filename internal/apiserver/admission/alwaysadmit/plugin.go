package alwaysadmit

import (
	"context"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

func (plugin) Name() string { return "AlwaysAdmit" }

func (plugin) Handles(*admission.Attributes) bool { return true }

// Admit allows the write.
func (plugin) Admit(context.Context, *admission.Attributes) error { return nil }

// Validate allows the write.
func (plugin) Validate(context.Context, *admission.Attributes) error { return nil }
