package api

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"secbox/fault"
	"secbox/tokens"
)

//go:embed openapi.yaml
var contractYAML []byte

// Contract returns openapi.yaml as it was built in.
func Contract() []byte { return slices.Clone(contractYAML) }

// public in x-roles means that a route looks at no token at all.
const public = "public"

// contract is openapi.yaml as the server uses it.
type contract struct {
	doc        node
	operations []operation // in the contract's order
}

// published is the contract as clients get it: without what only the generator of gen.go reads, since those extensions name Go types of
// this module.
func (c *contract) published() node {
	return c.doc.without(func(key string) bool { return strings.HasPrefix(key, "x-go-") || key == "x-order" })
}

// operation is one line of the table of roles and routes.
type operation struct {
	id     string
	method string
	path   string        // as in the contract, with {parameters}
	public bool          // no token is looked at
	roles  []tokens.Role // who may use it, when it is not public
	query  []string      // the query parameters that it knows
	needs  []string      // those of them that must be given
	spec   node
}

func (o operation) allows(role tokens.Role) bool { return o.public || slices.Contains(o.roles, role) }

// ownContract is the one that this program was built with.
var ownContract = sync.OnceValues(func() (*contract, error) { return loadContract(contractYAML) })

// loadContract reads the contract and refuses one that leaves open who may use a route.
func loadContract(text []byte) (*contract, error) {
	doc, err := parseYAML(text)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "openapi.yaml cannot be read")
	}
	c := &contract{doc: doc}
	for _, item := range doc.get("paths").entries() {
		for _, method := range item.entries() {
			op := operation{id: method.get("operationId").text(), method: strings.ToUpper(method.key), path: item.key, spec: method.node}
			if err := op.readRoles(); err != nil {
				return nil, err
			}
			for _, p := range method.get("parameters").list() {
				if p = p.follow(); p.get("in").text() == "query" {
					op.query = append(op.query, p.get("name").text())
					if p.get("required").text() == "true" {
						op.needs = append(op.needs, p.get("name").text())
					}
				}
			}
			c.operations = append(c.operations, op)
		}
	}
	return c, nil
}

// takes reports whether a body of this type is one that the operation wants.
func (o operation) takes(mediaType string) bool {
	return o.spec.get("requestBody", "content", mediaType).exists()
}

func (o *operation) readRoles() error {
	names := o.spec.get("x-roles").strings()
	if len(names) == 0 || o.id == "" {
		return fault.New(fault.Internal, "openapi.yaml: %s %s has no x-roles or no operationId", o.method, o.path)
	}
	for _, name := range names {
		switch role := tokens.Role(name); {
		case name == public && len(names) == 1:
			o.public = true
		case role.Valid():
			o.roles = append(o.roles, role)
		default:
			return fault.New(fault.Internal, "openapi.yaml: %s %s: x-roles cannot hold %q here", o.method, o.path, name)
		}
	}
	return nil
}
