"""Runs the code of the input in a fork of this interpreter, which has started already."""

import builtins
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import capture

MAIN = "/tmp/main.py"  # a real file, so that tracebacks show its lines
WORK = "/workspace/work"


def become_main(given):
    """Makes this process look as if it had been started with MAIN: with a new, empty __main__."""
    del sys.path[0], sys.modules["capture"]
    sys.path.append(WORK)  # last, so that modules there do not shadow Python's own
    sys.argv[:] = [MAIN, *given.get("args", [])]
    sys.stdin = sys.__stdin__ = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
    main = type(sys)("__main__")
    main.__file__ = MAIN
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    return main.__dict__


def run(code, variables):
    try:
        exec(compile(code, MAIN, "exec", dont_inherit=True), variables)
    except SystemExit:
        raise
    except BaseException as e:
        e.__traceback__ = e.__traceback__.tb_next  # without this function
        sys.excepthook(type(e), e, e.__traceback__)
        sys.exit(1)


given = capture.read_input()
code = capture.program(given["code"]).encode("utf-8", "replace").decode()
capture.put(MAIN, code)
stdin = capture.open_stdin(given.get("stdin"))
out, out_end = os.pipe()
err, err_end = os.pipe()
pid = os.fork()
if pid:
    os.close(stdin)
    os.close(out_end)
    os.close(err_end)
    capture.finish(*capture.relay(pid, out, err))
os.setpgid(0, 0)
for n, fd in enumerate((stdin, out_end, err_end)):
    os.dup2(fd, n)
    os.close(fd)
os.close(out)
os.close(err)
this = sys.modules["__main__"]  # keep it: run belongs to it
run(code, become_main(given))
