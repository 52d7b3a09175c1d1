"""Input, output and safe access to files, shared by the skills that read work/. No path and no link leads out of work/.

work/ may hold anything: links to any file, FIFOs that block when they are opened, names that are not UTF-8.
"""

import fnmatch
import json
import os
import re
import stat
import sys

WORK = "/workspace/work"
NO_FILE = "neither a file nor a folder"


def read_input():
    with open(os.environ["SKILL_INPUT"], encoding="utf-8") as f:
        try:
            return json.load(f)
        except RecursionError:
            refuse("the input is nested too deep")


def write_output(value):
    with open(os.environ["SKILL_OUTPUT"], "wb") as f:
        f.write(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def refuse(reason, code=2):
    os.write(2, (reason + "\n").encode("utf-8", "replace"))
    sys.exit(code)


def shown(name):
    """Returns a file's name as text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def inside(path, field="path"):
    """Returns the cleaned path below WORK, "" for WORK itself. The file may be gone when the path is used."""
    parts = [p for p in path.split("/") if p not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        refuse("%s: %r must be relative to work/ and stay below it" % (field, path))
    at = WORK
    for part in parts:
        at += "/" + part
        try:
            mode = os.lstat(at).st_mode
        except (OSError, ValueError) as e:
            refuse("%s: %r: %s" % (field, path, getattr(e, "strerror", None) or "no file can have this name"))
        if stat.S_ISLNK(mode):
            refuse("%s: %r is a link or below one, and links are not followed" % (field, path))
    return "/".join(parts)


def open_file(path):
    """Opens a regular file. Other files are errors."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, NO_FILE)
    return open(fd, "rb", buffering=64 * 1024)


def kind(entry):
    """Returns "file", "folder", or why a DirEntry is neither."""
    if entry.is_symlink():
        return "a link, which is not followed"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else NO_FILE


def walk(top, leave_out):
    """Yields (path below top, kind) for each entry of a folder, recursively, each folder before its content, in the order of names.

    Entries for which leave_out(name, path) is true are skipped with their content. A folder that cannot be read is yielded twice, the
    second time with the reason.
    """
    todo = [("", "folder")]
    while todo:
        path, what = todo.pop()
        if path:
            yield path, what
        if what != "folder":
            continue
        below = path + "/" if path else ""
        try:
            with os.scandir(top + "/" + path) as entries:
                found = [(below + e.name, kind(e)) for e in entries if not leave_out(e.name, below + e.name)]
        except OSError as e:
            yield path, "not readable: " + e.strerror
            continue
        found.sort(reverse=True)
        todo += found


def globs(patterns):
    """Returns a function that reports whether one of the globs matches: the name, or, for a glob with a slash, the path."""
    tests = [("/" in p, re.compile(fnmatch.translate(p)).match) for p in patterns]
    return lambda name, path: any(fits(path if whole else name) for whole, fits in tests)
