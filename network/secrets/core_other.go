//go:build !linux

package secrets

// NoCoreDumps does nothing here.
func NoCoreDumps() error { return nil }
