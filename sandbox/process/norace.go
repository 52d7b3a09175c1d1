//go:build !race

package process

// helperEnviron are the variables of workers and searches: none. It is not nil, which would mean
// the variables of this process.
var helperEnviron = []string{}
