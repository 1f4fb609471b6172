package authz

import (
	"errors"
	"fmt"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// The modes of --authorization-mode.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
)

// Modes returns all modes, in the order in which the help of the flag lists them.
func Modes() []string {
	return []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}
}

// New returns the chain of the given modes, in their order, after Masters. build has a constructor for each mode that needs more than its
// name; only those of the given modes are called.
func New(modes []string, build map[string]func() Authorizer) (Chain, error) {
	if err := checkModes(modes, build); err != nil {
		return nil, err
	}
	chain := Chain{Masters{}}
	for _, mode := range modes {
		switch mode {
		case ModeAlwaysAllow:
			chain = append(chain, AlwaysAllow{})
		case ModeAlwaysDeny:
			chain = append(chain, AlwaysDeny{})
		default:
			chain = append(chain, build[mode]())
		}
	}
	return chain, nil
}

func checkModes(modes []string, build map[string]func() Authorizer) error {
	var errs []error
	if len(modes) == 0 {
		errs = append(errs, errors.New("at least one authorization-mode must be passed"))
	}
	repeated := false
	for i, mode := range modes {
		repeated = repeated || slices.Contains(modes[:i], mode)
		switch {
		case !slices.Contains(Modes(), mode):
			errs = append(errs, fmt.Errorf("authorization-mode %q is not a valid mode", mode))
		case mode == ModeAlwaysAllow, mode == ModeAlwaysDeny, build[mode] != nil:
		case mode == ModeABAC:
			errs = append(errs, errors.New("authorization-mode ABAC's authorization policy file not passed"))
		case mode == ModeWebhook:
			errs = append(errs, errors.New("authorization-mode Webhook's authorization config file not passed"))
		default:
			errs = append(errs, fmt.Errorf("authorization-mode %s is not available in this server", mode))
		}
	}
	if repeated {
		errs = append(errs, fmt.Errorf("authorization-mode %q has mode specified more than once", modes))
	}
	return utilerrors.NewAggregate(errs)
}
