package secrets

import "golang.org/x/sys/unix"

// NoCoreDumps keeps the kernel from writing a core dump of this process, which would have the
// values. 1 also stops dumps to a program, which 0 does not (core(5)), and no file fits into it.
func NoCoreDumps() error {
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}
