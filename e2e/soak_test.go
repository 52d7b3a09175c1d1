package e2e

import "os"

// scaled is how often a test with random timing repeats: short in every run, long when
// SECBOX_SOAK=1 (`make soak`).
func scaled(short, long int) int {
	if os.Getenv("SECBOX_SOAK") == "1" {
		return long
	}
	return short
}
