//go:build !linux

package inside

// Main does nothing: there are containers on Linux only.
func Main() {}
