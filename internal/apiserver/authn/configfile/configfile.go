package configfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// MaxSize bounds the size of the file.
const MaxSize = 1 << 20

// Read returns the content of the file.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("%s is larger than %d bytes", path, MaxSize)
	}
	return data, err
}

// Parse returns the configuration in a file's content. Unknown and repeated fields are errors.
func Parse(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("empty config data")
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	c, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", object)
	}
	return c, nil
}

// Validate returns what is wrong with the configuration. The issuers of service account tokens are disallowed: others must not issue them.
func Validate(c *apiserver.AuthenticationConfiguration, disallowedIssuers []string) field.ErrorList {
	var compiler authenticationcel.Compiler // it takes time and memory to make
	if len(c.JWT) > 0 {
		compiler = authenticationcel.NewDefaultCompiler()
	}
	return validation.ValidateAuthenticationConfiguration(compiler, c, disallowedIssuers)
}
