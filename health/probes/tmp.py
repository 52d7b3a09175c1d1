# Writes the given number of MiB to /tmp.
written, stopped = 0, "done"
with open("/tmp/fill", "wb", buffering=0) as f:
    while written < int(sys.argv[1]) << 20:
        try:
            written += f.write(b"x" * (1 << 16))
        except OSError as e:
            stopped = errno.errorcode.get(e.errno, str(e))
            break
say(written=written, stopped=stopped)
