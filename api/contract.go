package api

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"secbox/fault"
	"secbox/tokens"
)

//go:embed openapi.yaml
var contractYAML []byte

// Contract returns a copy of openapi.yaml as it was built in.
func Contract() []byte { return slices.Clone(contractYAML) }

// public in x-roles means that a route looks at no token at all.
const public = "public"

// contract is openapi.yaml as the server uses it.
type contract struct {
	doc        *openapi3.T
	operations map[string]operation // by operationId
}

// operation is one line of the table of roles and routes.
type operation struct {
	id     string
	method string
	path   string        // as in the contract, with {parameters}
	public bool          // no token is looked at
	roles  []tokens.Role // who may use it, when it is not public
	query  []string      // the query parameters that it knows
	spec   *openapi3.Operation
}

func (o operation) allows(role tokens.Role) bool { return o.public || slices.Contains(o.roles, role) }

// loadContract reads the contract and refuses one that leaves open who may use a route.
func loadContract() (*contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(contractYAML)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "openapi.yaml cannot be read")
	}
	c := &contract{doc: doc, operations: map[string]operation{}}
	for path, item := range doc.Paths.Map() {
		for method, spec := range item.Operations() {
			op := operation{id: spec.OperationID, method: method, path: path, spec: spec}
			if err := op.readRoles(); err != nil {
				return nil, err
			}
			for _, p := range append(slices.Clone(item.Parameters), spec.Parameters...) {
				if p.Value.In == openapi3.ParameterInQuery {
					op.query = append(op.query, p.Value.Name)
				}
			}
			c.operations[op.id] = op
		}
	}
	return c, nil
}

func (o *operation) readRoles() error {
	list, ok := o.spec.Extensions["x-roles"].([]any)
	if !ok || len(list) == 0 {
		return fault.New(fault.Internal, "openapi.yaml: %s %s has no x-roles", o.method, o.path)
	}
	for _, entry := range list {
		name, _ := entry.(string)
		switch role := tokens.Role(name); {
		case name == public && len(list) == 1:
			o.public = true
		case role.Valid():
			o.roles = append(o.roles, role)
		default:
			return fault.New(fault.Internal, "openapi.yaml: %s %s: x-roles cannot hold %v here", o.method, o.path, entry)
		}
	}
	return nil
}

// sorted lists the operations in the order of a reader: by path as the contract's tags group them, then by method.
func (c *contract) sorted() []operation {
	ops := make([]operation, 0, len(c.operations))
	for _, op := range c.operations {
		ops = append(ops, op)
	}
	tag := func(o operation) int {
		return slices.IndexFunc(c.doc.Tags, func(t *openapi3.Tag) bool { return len(o.spec.Tags) > 0 && t.Name == o.spec.Tags[0] })
	}
	methods := []string{"POST", "GET", "PUT", "PATCH", "DELETE"}
	slices.SortFunc(ops, func(a, b operation) int {
		if d := tag(a) - tag(b); d != 0 {
			return d
		}
		if d := strings.Compare(a.path, b.path); d != 0 {
			return d
		}
		return slices.Index(methods, a.method) - slices.Index(methods, b.method)
	})
	return ops
}
