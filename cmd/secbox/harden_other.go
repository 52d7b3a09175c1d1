//go:build !linux

package main

// harden is for Linux.
func harden() {}
