package policy

// Names are the names of all fields, in the order of reports.
func Names() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name()
	}
	return names
}
