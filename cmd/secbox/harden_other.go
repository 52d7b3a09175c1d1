//go:build !linux

package main

// harden does nothing: the call exists on Linux only.
func harden() {}
