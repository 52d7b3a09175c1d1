"""Shows a Git diff without letting the repository's configuration run anything.

A repository's configuration can name commands in more ways than git has options to disable: filters, textconv, fsmonitor, hooks, remotes
from which missing objects are fetched. So git never reads it: git works in a new directory, with links to the repository's objects and refs
and a configuration that holds only the settings for comparing files.
"""

import os
import re
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tree

GIT_DIR = "/tmp/git"
SMALL = 64 * 1024  # bytes of HEAD and the like
FILES_AT_MOST = 5000
NAMES_AT_MOST = 1 << 20  # bytes of all their names
SHARED = ("objects", "refs", "packed-refs", "shallow", "logs", "reftable")  # by all work trees of a repository
OWN = re.compile(r"index|sharedindex\.[0-9a-f]+|[A-Z_]*HEAD")  # a work tree's
KEPT = r"^(core\.(filemode|autocrlf|eol|ignorecase|symlinks)|extensions\.(objectformat|refstorage))$"
STATUS = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "T": "type_changed", "U": "unmerged"}


def find_repository(start):
    """Finds the work tree that contains start (relative to work/), its git directory, and the one shared by its work trees."""
    at = start
    while not os.path.lexists(tree.WORK + "/" + at + "/.git"):
        if not at:
            refuse_repository(start, "neither it nor a folder above it, up to work/, is a Git repository")
        at = os.path.dirname(at)
    top = os.path.normpath(tree.WORK + "/" + at)
    own = top + "/.git"
    mode = os.lstat(own).st_mode
    if stat.S_ISREG(mode):
        own = resolve(start, top, read_small(start, own).removeprefix("gitdir:"))
    elif not stat.S_ISDIR(mode):
        refuse_repository(start, "its .git is a link or something else that is no folder")
    shared = own
    if os.path.lexists(own + "/commondir"):
        shared = resolve(start, own, read_small(start, own + "/commondir"))
    return top, own, shared


def refuse_repository(start, reason):
    tree.refuse("path: %r: %s" % (start or ".", reason))


def resolve(start, base, path):
    path = os.path.realpath(os.path.join(base, path.strip()))
    if not path.startswith(tree.WORK + "/"):
        refuse_repository(start, "its Git folder is outside of work/")
    return path


def read_small(start, path):
    try:
        with tree.open_file(path) as f:
            return os.fsdecode(f.read(SMALL))
    except OSError as e:
        refuse_repository(start, "%s cannot be read: %s" % (os.path.basename(path), e.strerror))


def make_git_dir(start, own, shared):
    """Makes the directory that git works in."""
    os.mkdir(GIT_DIR)
    with open(GIT_DIR + "/HEAD", "w", errors="surrogateescape") as f:
        f.write(read_small(start, own + "/HEAD"))
    links = [(shared, n) for n in SHARED] + [(own, n) for n in sorted(os.listdir(own)) if n != "HEAD" and OWN.fullmatch(n)]
    for folder, name in links:
        source = folder + "/" + name
        if os.path.exists(source):
            if not (os.path.isdir(source) or os.path.isfile(source)):
                refuse_repository(start, "%s is neither a file nor a folder" % name)  # git would wait for a FIFO's writer
            os.symlink(source, GIT_DIR + "/" + name)
    with open(GIT_DIR + "/config", "w") as f:
        f.write("[core]\nrepositoryformatversion = 1\nbare = false\n")
        f.flush()  # kept_config runs git, which reads it
        if os.path.isfile(shared + "/config"):
            f.write(kept_config(shared + "/config"))


def kept_config(path):
    """Returns the repository's settings for comparing files. None of them can be a command."""
    listing = run_git("config", "--file", path, "--no-includes", "--null", "--get-regexp", KEPT, may_fail=True)
    lines = []
    for item in os.fsdecode(listing).split("\0"):
        key, _, value = item.partition("\n")
        if re.fullmatch("[A-Za-z0-9]+", value):
            section, _, name = key.partition(".")
            lines.append("[%s]\n%s = %s\n" % (section, name, value))
    return "".join(lines)


def environment(top):
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "GIT_DIR": GIT_DIR,
        "GIT_WORK_TREE": top,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }


def start_git(*args, stdin=subprocess.DEVNULL):
    argv = ["git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *args]
    return subprocess.Popen(argv, env=git_environment, cwd=git_folder, stdin=stdin, stdout=subprocess.PIPE)


def run_git(*args, stdin=None, may_fail=False):
    git = start_git(*args, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL)
    out, _ = git.communicate(stdin)
    if git.returncode and not may_fail:
        end_like(git.returncode)
    return out


def end_like(code):
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def trees_of(given):
    """Returns the trees of from and to. Their names reach git through a pipe, so that none is taken for an option or a range."""
    fields = [f for f in ("from", "to") if f in given]
    names = [given[f] for f in fields]
    for field, name in zip(fields, names):
        if name.startswith("-") or re.search(r"[\0-\x20\x7f]", name):
            tree.refuse("%s: %r is no name of a commit" % (field, name))
    if not names:
        return []
    asked = "".join(name + "^{tree}\n" for name in names).encode("utf-8", "replace")
    answers = run_git("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked).splitlines()
    for field, name, answer in zip(fields, names, answers):
        if not re.fullmatch(rb"tree [0-9a-f]+", answer):
            tree.refuse("%s: %r names no commit of this repository" % (field, name))
    return [answer.split()[1].decode() for answer in answers]


def listing(text):
    """Parses `git diff --raw --numstat -z`: the changed files, and whether there were too many."""
    tokens = iter(os.fsdecode(text).split("\0"))
    files = {}
    for token in tokens:
        if token.startswith(":"):
            letter = token.split(" ")[4][0]
            old = next(tokens)
            path = next(tokens) if letter in "RC" else old
            file = {"path": tree.shown(path), "status": STATUS.get(letter, "modified"), "additions": None, "deletions": None}
            if path != old:
                file["old_path"] = tree.shown(old)
            files.setdefault(path, file)
        elif token.count("\t") >= 2:
            added, deleted, path = token.split("\t", 2)
            if not path:
                next(tokens)
                path = next(tokens)
            if added != "-" and path in files:
                files[path].update(additions=int(added), deletions=int(deleted))
    kept, room = [], NAMES_AT_MOST
    for file in files.values():
        room -= len(file["path"].encode()) + len(file.get("old_path", "").encode())
        if room < 0 or len(kept) == FILES_AT_MOST:
            return kept, True
        kept.append(file)
    return kept, False


def patch(args, most):
    """Returns the diff, cut at the end of a line if it is too long, and whether it was cut."""
    git = start_git(*args)
    content = git.stdout.read(most + 1)
    truncated = len(content) > most
    if truncated:
        git.kill()
        content = content[: content.rfind(b"\n", 0, most) + 1]
    code = git.wait()
    if code and not truncated:
        end_like(code)
    return content.decode("utf-8", "replace"), truncated


given = tree.read_input()
if "to" in given and ("from" not in given or given.get("staged")):
    tree.refuse("to: it needs from, and cannot be together with staged")
start = tree.inside(given.get("path", "."))
for path in given.get("paths", []):
    if path.startswith("/") or ".." in path.split("/"):
        tree.refuse("paths: %r must be relative to path and stay below it" % path)
git_folder = tree.WORK + "/" + start
if not os.path.isdir(git_folder):
    refuse_repository(start, "is no folder")
top, own, shared = find_repository(start)
git_environment = environment(top)
make_git_dir(start, own, shared)

what = ["--cached"] if given.get("staged") else []
command = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--find-renames", *what, *trees_of(given)]
names = ["--", *given.get("paths", [])]
files, too_many = listing(run_git(*command, "--raw", "--numstat", "-z", *names))
diff, too_long = patch([*command, "--unified=%d" % given.get("context", 3), *names], given.get("max_bytes", 262144))
tree.write_output({"diff": diff, "files": files, "truncated": too_many or too_long})
