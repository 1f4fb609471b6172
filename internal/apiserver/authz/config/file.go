package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"skiff/internal/apiserver/authz"
)

// maxFile bounds the size of a configuration file.
const maxFile = 3 << 20

// codecs knows the configurations of apiserver.config.k8s.io. It is made when a file is first decoded.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
})

// compiler compiles match conditions. Its environment is made for the first of them.
type compiler struct{}

var newCompiler = sync.OnceValue(authorizationcel.NewDefaultCompiler)

// CompileCELExpression compiles a match condition.
func (compiler) CompileCELExpression(e authorizationcel.ExpressionAccessor) (authorizationcel.CompilationResult, error) {
	return newCompiler().CompileCELExpression(e)
}

// nameOf returns the name that an authorizer other than a webhook has.
func nameOf(mode string) string { return strings.ToLower(mode) }

// readFile returns the content of a configuration file.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}

// parse decodes and validates a configuration. It must have the types that are required.
func parse(data []byte, required []string) (*api.AuthorizationConfiguration, error) {
	c, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
	}
	errs := validation.ValidateAuthorizationConfiguration(compiler{}, nil, c, sets.New(authz.Modes()...), sets.New(authz.ModeWebhook))
	for i, a := range c.Authorizers {
		if a.Webhook != nil && a.Webhook.ConnectionInfo.Type == api.AuthorizationWebhookConnectionInfoTypeInCluster {
			errs = append(errs, field.Invalid(field.NewPath("authorizers").Index(i).Child("connectionInfo", "type"), a.Webhook.ConnectionInfo.Type,
				"is not allowed for kube-apiserver"))
		}
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c, checkNames(c, required)
}

func decode(data []byte) (*api.AuthorizationConfiguration, error) {
	if len(data) == 0 {
		return &api.AuthorizationConfiguration{}, nil
	}
	decoded, err := runtime.Decode(codecs().UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	c, ok := decoded.(*api.AuthorizationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthorizationConfiguration, got %T", decoded)
	}
	return c, nil
}

// checkNames checks that authorizers other than webhooks have the names that they have without a configuration, and that all required types are there.
func checkNames(c *api.AuthorizationConfiguration, required []string) error {
	var errs []error
	missing := slices.Clone(required)
	for _, a := range c.Authorizers {
		if a.Type == api.TypeWebhook {
			continue
		}
		missing = slices.DeleteFunc(missing, func(t string) bool { return t == string(a.Type) })
		if want := nameOf(string(a.Type)); a.Name != want {
			errs = append(errs, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		errs = append(errs, fmt.Errorf("missing required types: %v", missing))
	}
	return utilerrors.NewAggregate(errs)
}

// errNotAtStart refuses a type in a configuration that is reloaded.
func errNotAtStart(mode string) error {
	return errors.New("authorizer type " + mode + " is not allowed if it was not enabled at initial server startup")
}
