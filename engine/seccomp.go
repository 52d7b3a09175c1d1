package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"secbox/fault"
)

// allowedCalls are the system calls that a container may make with any arguments. The list is
// Docker's default profile for processes without capabilities, without io_uring (which engines
// before 25 allow), memfd_secret, name_to_handle_at, fanotify_mark and modify_ldt, and with newer
// calls. Other calls fail with EPERM, as with Docker's profile: keyctl, userfaultfd, bpf,
// perf_event_open, unshare, setns, mount and the like.
const allowedCalls = `
accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range connect
copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2
fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs
fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list
get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer
getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid
getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init inotify_init1
inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc
kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr listxattrat
llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create mincore mkdir mkdirat mknod
mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat _newselect open
openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64
preadv preadv2 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead
readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat
renameat2 restart_syscall riscv_flush_icache riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile
sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32
setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32
setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4
sigprocmask sigreturn splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64
ugetrlimit umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls`

// seccompRule is a rule as the engine reads it. Several rules for one call are alternatives.
type seccompRule struct {
	Names  []string     `json:"names"`
	Action string       `json:"action"`
	Args   []seccompArg `json:"args,omitempty"`
	Errno  uint         `json:"errnoRet,omitempty"`
}

type seccompArg struct {
	Index uint   `json:"index"`
	Value uint64 `json:"value"`
	Op    string `json:"op"`
}

type seccompArch struct {
	Name string   `json:"architecture"`
	Sub  []string `json:"subArchitectures"`
}

// seccompProfile is the profile of all containers in the engine's JSON.
func seccompProfile() []byte {
	allow := func(name string, args ...seccompArg) seccompRule {
		return seccompRule{Names: []string{name}, Action: "SCMP_ACT_ALLOW", Args: args}
	}
	equal := func(index uint, value uint64) seccompArg { return seccompArg{index, value, "SCMP_CMP_EQ"} }
	const (
		unix       = 1
		namespaces = 0x7E020000 // all CLONE_NEW flags of clone
		enosys     = 38
	)
	rules := []seccompRule{
		{Names: strings.Fields(allowedCalls), Action: "SCMP_ACT_ALLOW"},
		allow("socketpair", equal(0, unix)),
		allow("clone", seccompArg{0, namespaces, "SCMP_CMP_MASKED_EQ"}),
		// Its flags are in memory, where no filter sees them; C libraries fall back to clone.
		{Names: []string{"clone3"}, Action: "SCMP_ACT_ERRNO", Errno: enosys},
		// So is socketcall, the other way of 32-bit programs to a socket. Without this rule,
		// libseccomp applies the rules for socket and socketpair to it and allows any family.
		{Names: []string{"socketcall"}, Action: "SCMP_ACT_ERRNO", Errno: enosys},
		// A process may change its own limits and read others'. sandbox-init has the job's uid, and
		// must keep its own.
		allow("prlimit64", equal(0, 0)),
		allow("prlimit64", equal(2, 0)),
	}
	// No other family is of use without a network. VSOCK leads to the hypervisor from any network
	// namespace, and asking for a rare one makes the kernel load its module.
	for _, family := range []uint64{unix, 2 /* INET */, 10 /* INET6 */, 16 /* NETLINK */} {
		rules = append(rules, allow("socket", equal(0, family)))
	}
	for _, persona := range []uint64{0x0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		rules = append(rules, allow("personality", equal(0, persona)))
	}
	profile, err := json.Marshal(struct {
		Default string        `json:"defaultAction"`
		Archs   []seccompArch `json:"archMap"`
		Rules   []seccompRule `json:"syscalls"`
	}{"SCMP_ACT_ERRNO", []seccompArch{
		{"SCMP_ARCH_X86_64", []string{"SCMP_ARCH_X86", "SCMP_ARCH_X32"}},
		{"SCMP_ARCH_AARCH64", []string{"SCMP_ARCH_ARM"}},
		{"SCMP_ARCH_RISCV64", nil},
	}, rules})
	if err != nil {
		panic(err) // it is made of constants
	}
	return profile
}

// WriteSeccomp writes the profile of all containers into a directory and returns its path, for
// Options.Seccomp.
func WriteSeccomp(dir string) (string, error) {
	path := filepath.Join(dir, "seccomp.json")
	err := os.WriteFile(path+".new", seccompProfile(), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "cannot write the seccomp profile %s", path)
	}
	return path, nil
}
