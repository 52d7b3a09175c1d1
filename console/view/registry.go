package view

import (
	"secbox/packages/registry"
)

// RegistryKinds are the choices of what the registry has, as in the paths of the API.
var RegistryKinds = []string{"skills", "agents"}

// RegistryPage is a page of what users published.
type RegistryPage struct {
	Pager
	Kind, Words string
	Rows        []registry.Entry
}

// RegistryEntryPage is a published skill or agent, with the record of its name.
type RegistryEntryPage struct {
	Pager
	Kind       string
	Entry      registry.Entry // zero: it is withdrawn
	SeesEvents bool
	Events     []registry.Event
	Names      map[string]string // of tokens
}
