# Writes the given number of MiB to a directory.
written, stopped = 0, "done"
with open(sys.argv[1] + "/fill", "wb", buffering=0) as f:
    while written < int(sys.argv[2]) << 20:
        try:
            written += f.write(b"x" * (1 << 16))
        except OSError as e:
            stopped = errno.errorcode.get(e.errno, str(e))
            break
say(written=written, stopped=stopped)
