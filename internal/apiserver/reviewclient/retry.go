package reviewclient

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// maxRetryAfter bounds how long a server may ask to wait before the next try.
const maxRetryAfter = 30 * time.Second

// DefaultBackoff returns how often and when a call is tried: five times within some four seconds.
func DefaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// Retry calls try until it succeeds, fails for good, the steps of the back-off are used up, or ctx ends. It returns the last error of try.
func Retry(ctx context.Context, backoff wait.Backoff, try func() error) error {
	for {
		err := try()
		if err == nil || !retriable(err) || backoff.Steps <= 1 {
			return err
		}
		delay := backoff.Step()
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, min(time.Duration(seconds)*time.Second, maxRetryAfter))
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// retriable reports whether a call may succeed when it is tried again: the connection broke, or the server says that it is overloaded or broken for now.
func retriable(err error) bool {
	if utilnet.IsConnectionReset(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, ok := apierrors.SuggestsClientDelay(err)
	return ok
}
