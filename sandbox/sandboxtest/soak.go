package sandboxtest

import "os"

// Soak returns the length of a test with random timing: short in every run, long with SECBOX_SOAK=1
// (`make soak`).
func Soak[T any](short, long T) T {
	if os.Getenv("SECBOX_SOAK") == "1" {
		return long
	}
	return short
}
