package imagepolicywebhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// callTimeout bounds one try, its answer included.
	callTimeout = 30 * time.Second
	// maxTries bounds the tries of a call; waits between them grow.
	maxTries = 5
	// maxAnswer bounds the body of an answer.
	maxAnswer = 1 << 20
)

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// webhook is the server that reviews images.
type webhook struct{ client *rest.RESTClient }

// newWebhook returns the server that the current context of a kubeconfig file names.
func newWebhook(kubeconfig string, dial Dial) (*webhook, error) {
	loaded, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, loaded.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(imagepolicyv1alpha1.SchemeGroupVersion)
	config.ContentType, config.NegotiatedSerializer = runtime.ContentTypeJSON, serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.Dial, config.Timeout, config.QPS = dial, callTimeout, -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &webhook{client}, nil
}

// review has the webhook fill in the status of a review. Failures that may pass are tried again.
func (w *webhook) review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview, backoff time.Duration) error {
	var result rest.Result
	err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: backoff, Factor: 1.5, Jitter: 0.2, Steps: maxTries}, func(ctx context.Context) (bool, error) {
		result = w.client.Post().Body(review).Do(ctx)
		return !passes(result.Error()), nil
	})
	if failure := result.Error(); failure != nil {
		return failure
	}
	if err != nil {
		return fmt.Errorf("webhook call failed: %w", err)
	}
	var code int
	if result.StatusCode(&code); code < http.StatusOK || code >= http.StatusMultipleChoices {
		return fmt.Errorf("Error contacting webhook: %d", code)
	}
	return result.Into(review)
}

// passes reports whether a failure is one that another try may not have.
func passes(err error) bool {
	_, asked := apierrors.SuggestsClientDelay(err)
	return asked || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// closeIdle closes connections that are not used.
func (w *webhook) closeIdle() { w.client.Client.CloseIdleConnections() }

// boundedAnswers fails to read answers that are longer than maxAnswer.
type boundedAnswers struct{ next http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{response.Body, maxAnswer}
	}
	return response, err
}

// WrappedRoundTripper is how client-go finds the transport below.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.next }

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return 0, fmt.Errorf("the response body is larger than %d bytes", maxAnswer)
	}
	b.left -= n
	return n, err
}
