//go:build race

package process

// helperEnviron are the variables of workers and searches. The race detector makes a process wait
// for a second before it exits; these must not.
var helperEnviron = []string{"GORACE=atexit_sleep_ms=0"}
