"""Runs the script of the input with bash."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import capture

SCRIPT = "/tmp/script.sh"

given = capture.read_input()
capture.put(SCRIPT, capture.program(given["script"]))
stdin = capture.open_stdin(given.get("stdin"))
out, out_end = os.pipe()
err, err_end = os.pipe()
try:
    pid = os.posix_spawn(
        "/bin/bash",
        [b"bash", b"-l", SCRIPT.encode(), *(a.encode("utf-8", "replace") for a in given.get("args", []))],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((stdin, out_end, err_end))],
        setpgroup=0,  # the `kill 0` of a script's trap must not end this process, which reads the output
        setsigdef=[capture.SIGPIPE, capture.SIGXFSZ],
    )
except OSError as e:
    os.write(2, ("bash cannot be started: %s\n" % e.strerror).encode())
    os._exit(126)
os.close(stdin)
os.close(out_end)
os.close(err_end)
capture.finish(*capture.relay(pid, out, err))
