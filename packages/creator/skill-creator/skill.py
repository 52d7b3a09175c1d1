#!/usr/bin/env python3
"""Makes, checks and packs skills."""

import os
import re
import sys

sys.dont_write_bytecode = True  # this folder is read-only
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I does not add it

import argparse

import package
import scaffold
from folder import Folder
from names import id_fault, shown, shows

FINDINGS, WRONG = 1, 2  # exit codes
MAX_SHOWN = 50
WORKSPACE = os.environ.get("SECBOX_WORKSPACE") or "/workspace/work"  # set in sandboxes
ARTIFACTS = "/workspace/artifacts"
TOOL_ID = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)+")


class Wrong(Exception):
    """A mistake of the caller; the message says what to do."""


def cmd_scaffold(args):
    if args.tool is not None and (not TOOL_ID.fullmatch(args.tool) or len(args.tool) > 122):
        raise Wrong(f"--tool {shown(args.tool)}: an id is words of lower-case letters and digits, at least two, joined by dots, such as text.count")
    why = id_fault(args.tool or args.name)
    if why:
        raise Wrong(f"a skill cannot be called {shown(args.tool or args.name)}: the name {why}")
    for what, text, most in (("NAME", args.name, 120), ("--description", args.description, 1024)):
        if not text.strip() or len(text) > most or not all(shows(c) for c in text):
            raise Wrong(f"{what} must be 1 to {most} characters on one line, all of which show")
    directory = args.dir or (os.path.join(WORKSPACE, "skills") if os.path.isdir(WORKSPACE) else ".")
    made = scaffold.make(directory, args.name, args.tool, args.description)
    print(f"made {shown(made)}")
    for path in sorted(scaffold.files(args.name, args.tool, args.description)):
        print(f"  {path}")
    print("Fill them in, then run: validate, and package.")
    return 0


def look(directory):
    if not directory:
        raise Wrong("DIR is empty; name the skill's folder, . for this one")
    folder = Folder(directory)
    findings = sorted(set(folder.findings))
    for path, sentence in findings[:MAX_SHOWN]:
        print(f"{shown(path)}: {sentence}")
    if len(findings) > MAX_SHOWN:
        print(f"and {len(findings) - MAX_SHOWN} more")
    return folder, not findings


def cmd_validate(args):
    folder, good = look(args.dir)
    if not good:
        return FINDINGS
    print(f"{shown(folder.name)} is a skill: {counted(folder.files)}, {folder.bytes} bytes")
    return 0


def cmd_package(args):
    folder, good = look(args.dir)
    if not good:
        print("nothing was packed", file=sys.stderr)
        return FINDINGS
    target = args.output or os.path.join(ARTIFACTS if os.path.isdir(ARTIFACTS) else ".", folder.name + ".zip")
    if os.path.isdir(target):
        target = os.path.join(target, folder.name + ".zip")
    real, root = os.path.realpath(target), os.path.realpath(folder.root)
    if real == root or real.startswith(root + os.sep):
        raise Wrong(f"-o {shown(target)} is in the skill itself; choose a path outside of it")
    if not os.path.isdir(os.path.dirname(real)):
        raise Wrong(f"-o {shown(target)}: there is no such folder to put it in")
    size = package.write(folder, target)
    print(f"packed {shown(folder.name)} into {shown(target)}: {counted(folder.files)}, {size} bytes")
    return 0


def counted(files):
    return "1 file" if files == 1 else f"{files} files"


def arguments():
    parser = argparse.ArgumentParser(
        prog="skill.py", description="Makes, checks and packs skills.", allow_abbrev=False,
        epilog="Exit codes: 0 all is well, 1 the skill has findings, 2 something else went wrong.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = commands.add_parser("scaffold", allow_abbrev=False, help="make the folder of a new skill", description="Makes the folder of a new skill, with a SKILL.md to be filled in.")
    one.add_argument("name", metavar="NAME", help="the skill's name; without --tool also its folder and its id")
    one.add_argument("--dir", metavar="D", help=f"where the folder is made; default: {WORKSPACE}/skills where there is a workspace, else here")
    one.add_argument("--tool", metavar="ID", help="make it a tool that can be invoked: ID, such as text.count, is its folder, and a manifest.json and a program are added")
    one.add_argument("--description", metavar="TEXT", default="Says in one sentence what the skill does and when to use it.", help="the sentence by which agents choose the skill")
    one.set_defaults(run=cmd_scaffold)

    one = commands.add_parser("validate", allow_abbrev=False, help="check a skill's folder", description="Checks a skill's folder. Each finding is a line FILE: SENTENCE; there is one line without a file when all is well.")
    one.add_argument("dir", metavar="DIR", help="the skill's folder, whose name is the skill's id")
    one.set_defaults(run=cmd_validate)

    one = commands.add_parser("package", allow_abbrev=False, help="pack a skill's folder for the upload", description="Checks a skill's folder and packs it into a ZIP archive that can be uploaded. The same files give the same archive.")
    one.add_argument("dir", metavar="DIR", help="the skill's folder, whose name is the skill's id")
    one.add_argument("-o", "--output", metavar="FILE.zip", help=f"the archive, or a folder for it; default: {ARTIFACTS} where there is such a folder, so that the archive is an artifact of the exec, else here")
    one.set_defaults(run=cmd_package)
    return parser.parse_args()


def main():
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    args = arguments()
    try:
        return args.run(args)
    except Wrong as e:
        print(f"skill.py: {e}", file=sys.stderr)
    except FileExistsError as e:
        print(f"skill.py: {shown(str(e.filename))} is there already; choose another name, or remove it", file=sys.stderr)
    except FileNotFoundError as e:
        print(f"skill.py: there is no {shown(str(e.filename))}", file=sys.stderr)
    except ValueError as e:  # a NUL in a path
        print(f"skill.py: {e}", file=sys.stderr)
    except OSError as e:
        print(f"skill.py: {shown(str(e.filename))}: {e.strerror}", file=sys.stderr)
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
