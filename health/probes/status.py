# Prints /proc/self/status, and the error of io_uring_setup, whose number is the same on all architectures.
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    uring = "done" if libc.syscall(425, 0, None) >= 0 else errno.errorcode.get(ctypes.get_errno(), "unknown")
except (ImportError, OSError):
    uring = ""
with open("/proc/self/status") as f:
    say(status={k: v.strip() for k, _, v in (line.partition(":") for line in f)}, uring=uring)
