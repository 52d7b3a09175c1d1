//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// startInPod does what initproto.PodFlag says. Jobs do not learn the addresses of the cluster,
// which a kubelet puts into every environment.
func startInPod(stdin io.Reader) error {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "KUBERNETES_") {
			_ = os.Unsetenv(name)
		}
	}
	if err := refuseSockets(); err != nil {
		return fmt.Errorf("cannot refuse sockets: %w", err)
	}
	late := time.AfterFunc(initproto.PodPatience, func() { os.Exit(exitLease) })
	defer late.Stop()
	_, err := io.ReadFull(stdin, make([]byte, 1))
	return err
}

// refuseSockets makes the kernel refuse all sockets but Unix ones to this process and to all that
// it starts, with the error of a kernel without a network. io_uring, which makes sockets without
// the call, and the calls of other architectures, whose numbers mean others, are refused, too.
func refuseSockets() error {
	// offsets in struct seccomp_data
	const number, arch, family = 0, 4, 16
	const refuse = unix.SECCOMP_RET_ERRNO
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(test uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const answer = unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		stmt(load, arch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		stmt(answer, refuse|uint32(unix.ENOSYS)),
		stmt(load, number),
		jump(unix.BPF_JGE, otherABI, 2, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 1, 0),
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 1, 4),
		stmt(answer, refuse|uint32(unix.ENOSYS)),
		stmt(load, family),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 1, 0),
		stmt(answer, refuse|uint32(unix.EAFNOSUPPORT)),
		stmt(answer, unix.SECCOMP_RET_ALLOW),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}
