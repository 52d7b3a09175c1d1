//go:build linux

package main

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0x40000000 // there are no such numbers
)
