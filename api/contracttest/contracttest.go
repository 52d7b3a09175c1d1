// Package contracttest checks every exchange with a running server against openapi.yaml: a test
// that uses its client fails if the server does not keep the contract. It must not know what a test
// checks itself.
package contracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"secbox/api"
)

// New returns a client for a server at any address. Each answer must have a status, a content type
// and, for JSON, a body that openapi.yaml declares for the route. A request with a 2xx answer must
// be valid; a refused one may be anything. An unknown path must be answered with the problem
// not_found.
//
// The client reads JSON bodies whole and streams other bodies.
func New(t testing.TB) *http.Client {
	t.Helper()
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: &transport{t: t, doc: doc, base: base}}
}

// contract is parsed once: most tests have several clients, and parsing takes longer than many
// tests.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Contract())
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("openapi.yaml is not valid OpenAPI: %w", err)
	}
	for _, schema := range doc.Components.Schemas {
		allowNull(schema)
	}
	return doc, nil
})

// allowNull makes schemas without a type accept null, as OpenAPI 3.0.3 specifies and the validator
// does not.
func allowNull(ref *openapi3.SchemaRef) {
	if ref == nil || ref.Ref != "" {
		return
	}
	if s := ref.Value; s.IsEmpty() {
		s.Nullable = true
	}
	for _, property := range ref.Value.Properties {
		allowNull(property)
	}
	allowNull(ref.Value.Items)
	allowNull(ref.Value.AdditionalProperties.Schema)
}

type transport struct {
	t    testing.TB
	doc  *openapi3.T
	base http.RoundTripper
}

// RoundTrip sends the request and validates it and the answer.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	route, params := tr.find(r)
	var sent []byte
	if r.Body != nil && r.Body != http.NoBody && route != nil && takesJSON(route.Operation) {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(sent)) // ContentLength is unchanged: a chunked body stays chunked
	}
	resp, err := tr.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	var got []byte
	if answersJSON(r, resp) {
		got, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil { // the server has ended
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(got))
	}
	if err := tr.check(r, route, params, sent, resp, got); err != nil {
		tr.t.Errorf("contract: %s %s -> %d: %v", r.Method, r.URL.RequestURI(), resp.StatusCode, err)
	}
	return resp, nil
}

// answersJSON reports whether the answer has a body of JSON.
func answersJSON(r *http.Request, resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (media == "application/json" || media == "application/problem+json") && r.Method != http.MethodHead
}

// check validates the exchange. sent is the body of a request in JSON, and got the body of an
// answer in JSON; they are nil for other bodies.
func (tr *transport) check(r *http.Request, route *routers.Route, params map[string]string, sent []byte, resp *http.Response,
	got []byte,
) error {
	if resp.StatusCode >= 400 && resp.StatusCode != http.StatusPreconditionFailed && resp.Header.Get("Content-Type") == "" {
		return errors.New("an error without a content type")
	}
	if route == nil {
		return tr.checkOutside(r, resp, got)
	}
	// The filter changes its request.
	asked := r.Clone(context.WithoutCancel(r.Context()))
	asked.Method = route.Method
	asked.Body = io.NopCloser(bytes.NewReader(bytes.TrimPrefix(sent, []byte("\xef\xbb\xbf")))) // RFC 8259, 8.1
	asked.GetBody = nil                                                                        // the filter would read the body of r again
	in := &openapi3filter.RequestValidationInput{
		Request: asked, PathParams: params, QueryParams: asked.URL.Query(), Route: route,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, ExcludeResponseBody: got == nil, MultiError: true, ExcludeRequestBody: !takesJSON(route.Operation),
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
	if resp.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(asked.Context(), in); err != nil {
			return fmt.Errorf("the server accepted an invalid request: %w", err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: in.Options,
		Body: io.NopCloser(bytes.NewReader(got)),
	}
	if err := openapi3filter.ValidateResponse(asked.Context(), answer); err != nil {
		return fmt.Errorf("%w; body: %.500s", err, got)
	}
	return tr.checkContentType(route, resp)
}

// takesJSON reports whether a schema describes the body, as opposed to archives and plain text.
func takesJSON(op *openapi3.Operation) bool {
	return op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] != nil
}

// checkContentType checks what the filter skips together with a body.
func (tr *transport) checkContentType(route *routers.Route, resp *http.Response) error {
	declared := route.Operation.Responses.Status(resp.StatusCode)
	contentType := resp.Header.Get("Content-Type")
	if len(declared.Value.Content) == 0 {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || declared.Value.Content.Get(media) == nil {
		return fmt.Errorf("content type %q is not declared", contentType)
	}
	return nil
}

// checkOutside checks the answer for an unknown path, or for a method that a path does not allow.
func (tr *transport) checkOutside(r *http.Request, resp *http.Response, got []byte) error {
	if r.Method == http.MethodOptions && resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if resp.StatusCode < 400 {
		return errors.New("openapi.yaml has no such route")
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") && resp.StatusCode == http.StatusNotFound &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		return nil // a page for browsers
	}
	schema := tr.doc.Components.Schemas["ProblemDocument"].Value
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		schema = tr.doc.Components.Schemas["V1Error"].Value
	}
	var body any
	if err := json.Unmarshal(got, &body); err != nil {
		return fmt.Errorf("not a problem document: %w: %.500s", err, got)
	}
	return schema.VisitJSON(body)
}

// find matches the request's path with the path templates. HEAD is GET without the body, and the
// last parameter of a download may contain slashes, which OpenAPI cannot express.
func (tr *transport) find(r *http.Request) (*routers.Route, map[string]string) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var found *routers.Route
	var values map[string]string
	for template, item := range tr.doc.Paths.Map() {
		params, ok := match(template, r.URL.EscapedPath())
		// a path without parameters comes before its templates
		if op := item.GetOperation(method); ok && op != nil && (found == nil || len(params) < len(values)) {
			found, values = &routers.Route{Spec: tr.doc, Path: template, PathItem: item, Method: method, Operation: op}, params
		}
	}
	return found, values
}

func match(template, path string) (map[string]string, bool) {
	params := map[string]string{}
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	for i, part := range want {
		if i >= len(got) {
			return nil, false
		}
		name, isParam := strings.CutPrefix(part, "{")
		name = strings.TrimSuffix(name, "}")
		switch {
		case isParam && name == "path" && i == len(want)-1:
			got = append(got[:i:i], strings.Join(got[i:], "/"))
			fallthrough
		case isParam:
			value, err := url.PathUnescape(got[i])
			if err != nil || value == "" {
				return nil, false
			}
			params[name] = value
		case part != got[i]:
			return nil, false
		}
	}
	return params, len(want) == len(got)
}
