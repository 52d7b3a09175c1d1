// Package server makes one running core-api out of the other packages: it opens and connects them
// in order, and closes them again.
//
// Start with server.go: Start is a list of named steps, and shutdown closes what they opened.
// start.go has most steps; each other file has the steps of one noun.
//
// The package must not know command lines, nor how the parts work. Only cmd imports it.
package server
