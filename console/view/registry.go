package view

import (
	"secbox/console/ui"
	"secbox/packages/registry"
)

// RegistryKinds are the choices of what the registry has, as in the paths of the API.
var RegistryKinds = []string{"skills", "agents"}

// RegistryPage is a page of what users published.
type RegistryPage struct {
	Kind, Words string
	Rows        []registry.Entry
	Next        ui.Address
	More, First bool
	Here        ui.Address
}

// RegistryEntryPage is a published skill or agent, with the record of its name.
type RegistryEntryPage struct {
	Kind       string
	Entry      registry.Entry // zero: it is withdrawn
	SeesEvents bool
	Events     []registry.Event
	Names      map[string]string // of tokens
	Next       ui.Address
	More       bool
	First      bool
	Here       ui.Address
}
