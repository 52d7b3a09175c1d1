"""Shared by shell.run and python.run: passes a child's output on at once, and keeps its beginning for the skill's output.

json and signal are not imported before the job has ended: they take as long to load as everything else here.
"""

import codecs
import os
import select
import sys
from _json import encode_basestring, make_scanner
from _signal import signal as handle

KEEP = 256 * 1024  # bytes kept of each stream; as JSON, both are smaller than the limit of a skill's output
CHUNK = 64 * 1024
TICK_MS = 20  # how often to check whether the child has ended while a process that it left holds its output open
SIGTERM, SIGCONT = 15, 18
SIGPIPE, SIGXFSZ = 13, 25  # Python ignores them; a shell must not


class Options:
    """Options of the scanner that the json module uses."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, None
    memo = {}


def read_input():
    with open(os.environ["SKILL_INPUT"], encoding="utf-8") as f:
        text = f.read()
    value, _ = make_scanner(Options)(text, len(text) - len(text.lstrip()))
    return value


def program(text):
    """Returns a program without a byte order mark, and with line breaks \\n if all are \\r\\n, as editors on Windows write it."""
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n") if text.count("\r\n") == text.count("\n") else text


def put(path, text):
    """Writes a new file. Half of a surrogate pair, which cannot be encoded, becomes a question mark."""
    with open(path, "xb") as f:
        f.write(text.encode("utf-8", "replace"))


def open_stdin(text):
    """Opens a file with the job's standard input. A pipe could fill up and would need a writer."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY)
    put("/tmp/stdin", text)
    fd = os.open("/tmp/stdin", os.O_RDONLY)
    os.unlink("/tmp/stdin")
    return fd


class Stream:
    """One of the child's two outputs: bytes read from `source` are written to `to` at once."""

    def __init__(self, source, to):
        self.source, self.to = source, to
        self.kept = bytearray()
        self.truncated = False

    def pass_on(self):
        """Reads once. Returns False at the end; raises BlockingIOError when there is nothing to read."""
        chunk = os.read(self.source, CHUNK)
        room = KEEP - len(self.kept)
        self.kept += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room
        view = memoryview(chunk)
        while view:
            view = view[os.write(self.to, view) :]
        return bool(chunk)

    def text(self):
        """Returns the kept bytes as text, without half a character at the cut."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(self.kept, not self.truncated)


def relay(pid, out, err):
    """Passes the child's output on until the child ends, even if it leaves processes. Returns its wait status and both streams."""
    handle(SIGTERM, lambda *_: terminate(pid))
    streams = {out: Stream(out, 1), err: Stream(err, 2)}
    poll = select.poll()
    for fd in streams:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    waiting, status = set(streams), None
    while waiting and status is None:
        for fd, _ in poll.poll(TICK_MS):
            if not read(streams[fd]):
                poll.unregister(fd)
                waiting.discard(fd)
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = code
    if status is None:
        _, status = os.waitpid(pid, 0)
    for fd in waiting:  # the child's output is in the pipe by now; other processes may still write, and are not waited for
        for _ in range(16):
            if not read(streams[fd], at_end=True):
                break
    return status, streams[out], streams[err]


def terminate(pid):
    """Passes on the SIGTERM that comes before the timeout: the child's group is not this process's, and may have something to write."""
    for number in (SIGTERM, SIGCONT):  # also for what is stopped
        try:
            os.killpg(pid, number)
        except OSError:  # all have ended
            pass


def read(stream, at_end=False):
    try:
        return stream.pass_on()
    except BlockingIOError:
        return not at_end


def finish(status, out, err):
    """Writes the skill's output and ends as the child did, so that the exec's record has the job's outcome."""
    code = os.waitstatus_to_exitcode(status)
    write_output(
        '{"exit_code": %d, "stdout": %s, "stderr": %s, "stdout_truncated": %s, "stderr_truncated": %s}\n'
        % (
            code if code >= 0 else 128 - code,
            encode_basestring(out.text()),
            encode_basestring(err.text()),
            "true" if out.truncated else "false",
            "true" if err.truncated else "false",
        )
    )
    if code < 0:
        die_of(-code)
    os._exit(code)


def write_output(text):
    """Replaces the output file. The job could write here too, so a link that it left is not followed."""
    path = os.environ["SKILL_OUTPUT"]
    try:
        if os.path.lexists(path):
            os.unlink(path)
        put(path, text)
    except OSError as e:
        os.write(2, ("the output of the skill cannot be written to %s: %s\n" % (path, e.strerror)).encode())


def die_of(number):
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
