// Package contract reads openapi.yaml: the document in its written order, and the table of
// operations with the roles that may use them. It must not know handlers or how a request is
// answered.
package contract

import (
	"slices"
	"strings"

	"secbox/access/tokens"
	"secbox/fault"
)

// public is the only entry of x-roles for an operation that needs no token.
const public = "public"

// Contract is openapi.yaml.
type Contract struct {
	Doc        Node
	Operations []Operation // in the order of the document
}

// Operation is one route and method.
type Operation struct {
	ID     string
	Method string
	Path   string        // with {parameters}
	Public bool          // needs no token
	Roles  []tokens.Role // that may use it unless it is public
	Query  []string      // the query parameters
	Needs  []string      // the required ones of Query
	Spec   Node
}

// Load parses the document. It refuses one with an operation that does not say who may use it.
func Load(text []byte) (*Contract, error) {
	doc, err := parseYAML(text)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot parse openapi.yaml")
	}
	c := &Contract{Doc: doc}
	for _, item := range doc.Get("paths").Entries() {
		for _, method := range item.Entries() {
			op := Operation{ID: method.Get("operationId").Text(), Method: strings.ToUpper(method.Key), Path: item.Key, Spec: method.Node}
			if err := op.readRoles(); err != nil {
				return nil, err
			}
			for _, p := range op.Parameters() {
				if p.Get("in").Text() == "query" {
					op.Query = append(op.Query, p.Get("name").Text())
					if p.Get("required").Text() == "true" {
						op.Needs = append(op.Needs, p.Get("name").Text())
					}
				}
			}
			c.Operations = append(c.Operations, op)
		}
	}
	return c, nil
}

// Published returns the document for clients. It leaves out the extensions for the code generator,
// which name Go types of this module.
func (c *Contract) Published() Node {
	return c.Doc.without(func(key string) bool { return strings.HasPrefix(key, "x-go-") || key == "x-order" })
}

// Allows reports whether the role may use the operation.
func (o Operation) Allows(role tokens.Role) bool { return o.Public || slices.Contains(o.Roles, role) }

// Takes reports whether the operation has a body of this media type.
func (o Operation) Takes(mediaType string) bool {
	return o.Spec.Get("requestBody", "content", mediaType).Exists()
}

// Parameters returns the operation's parameters, references followed.
func (o Operation) Parameters() []Node {
	list := o.Spec.Get("parameters").List()
	for i := range list {
		list[i] = list[i].Follow()
	}
	return list
}

func (o *Operation) readRoles() error {
	names := o.Spec.Get("x-roles").Strings()
	if len(names) == 0 || o.ID == "" {
		return fault.New(fault.Internal, "openapi.yaml: %s %s has no x-roles or no operationId", o.Method, o.Path)
	}
	for _, name := range names {
		switch role := tokens.Role(name); {
		case name == public && len(names) == 1:
			o.Public = true
		case role.Valid():
			o.Roles = append(o.Roles, role)
		default:
			return fault.New(fault.Internal, "openapi.yaml: %s %s: %q is not a valid entry of x-roles here", o.Method, o.Path, name)
		}
	}
	return nil
}
