package routes

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
)

// Route is one operation: a method at a path.
type Route struct {
	method, path       string
	operation          string
	description        string
	consumes, produces []string
	parameters         []*Parameter
	body               Model
	takesBody          bool
	responses          []common.StatusCodeResponse
	metadata           map[string]any
}

var _ common.Route = &Route{}

func (r *Route) Method() string           { return r.method }
func (r *Route) Path() string             { return r.path }
func (r *Route) OperationName() string    { return r.operation }
func (r *Route) Description() string      { return r.description }
func (r *Route) Consumes() []string       { return r.consumes }
func (r *Route) Produces() []string       { return r.produces }
func (r *Route) Metadata() map[string]any { return r.metadata }

func (r *Route) Parameters() []common.Parameter {
	parameters := make([]common.Parameter, len(r.parameters))
	for i, p := range r.parameters {
		parameters[i] = p
	}
	return parameters
}

// RequestPayloadSample returns the Model of the body, nil if there is none.
func (r *Route) RequestPayloadSample() any {
	if !r.takesBody {
		return nil
	}
	return r.body
}

// ResponsePayloadSample returns nil: every route lists its responses in StatusCodeResponses.
func (r *Route) ResponsePayloadSample() any { return nil }

func (r *Route) StatusCodeResponses() []common.StatusCodeResponse { return r.responses }

// query adds the fields of an options struct as query parameters. Fields that are structs are not parameters.
func (r *Route) query(options any, except ...string) *Route {
	docs := map[string]string{}
	if d, ok := options.(interface{ SwaggerDoc() map[string]string }); ok {
		docs = d.SwaggerDoc()
	}
	t := reflect.TypeOf(options).Elem()
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		dataType := queryType(field.Type)
		if name == "" || dataType == "" || slices.Contains(except, name) {
			continue
		}
		p := queryParameter(name, docs[name])
		p.dataType = dataType
		r.parameters = append(r.parameters, p)
	}
	return r
}

// takes adds a body.
func (r *Route) takes(model Model, required bool) *Route {
	r.body, r.takesBody = model, true
	r.parameters = append(r.parameters, &Parameter{name: "body", kind: common.BodyParameterKind, required: required})
	return r
}

func (r *Route) returns(model Model, codes ...int) *Route {
	for _, code := range codes {
		r.responses = append(r.responses, response{code: code, model: model})
	}
	return r
}

type response struct {
	code  int
	model Model
}

func (r response) Code() int       { return r.code }
func (r response) Message() string { return http.StatusText(r.code) }
func (r response) Model() any      { return r.model }

// Parameter is a parameter of a path or of a query, or the body.
type Parameter struct {
	name, description, dataType string
	kind                        common.ParameterKind
	required                    bool
}

var _ common.Parameter = &Parameter{}

func (p *Parameter) Name() string               { return p.name }
func (p *Parameter) Description() string        { return p.description }
func (p *Parameter) Required() bool             { return p.required }
func (p *Parameter) Kind() common.ParameterKind { return p.kind }
func (p *Parameter) DataType() string           { return p.dataType }
func (p *Parameter) AllowMultiple() bool        { return false }

const prettyDoc = "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a " +
	"browser or command-line HTTP tool (curl and wget)."

func pathParameter(name, description string) *Parameter {
	return &Parameter{name: name, description: description, dataType: "string", kind: common.PathParameterKind, required: true}
}

func queryParameter(name, description string) *Parameter {
	return &Parameter{name: name, description: description, dataType: "string", kind: common.QueryParameterKind}
}

// queryType returns the OpenAPI type of a field of an options struct, empty if the field cannot be a query parameter. A list has the
// type of its items.
func queryType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	default:
		return ""
	}
}
