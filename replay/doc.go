// Package replay runs an exec again from its record – the same command, image, skill, inputs and
// policy – and compares what came out. It also lists and opens the inputs of an exec.
//
// Read replay.go, compare.go, inputs.go.
//
// The package must not know HTTP, SQL or Docker. It stands beside runner and above skills, which it
// both calls, and so has a room of its own.
package replay
