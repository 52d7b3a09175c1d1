package ui

import "github.com/a-h/templ"

// refused are the attributes of a field whose value was refused.
func refused(name, problem string) templ.Attributes {
	if problem == "" {
		return nil
	}
	return templ.Attributes{"aria-invalid": "true", "aria-describedby": "p-" + name}
}
