"""Searches the files below work/ line by line."""

import codecs
import collections
import io
import json
import os
import re
import sys
import warnings

sys.path.insert(0, os.path.dirname(__file__))
import tree

READ_AT_MOST = 1 << 20  # characters of a line; the rest is not searched
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # a byte order mark is not part of the first line
SHOW_AT_MOST = 1000  # characters of a line
SHOW_BEFORE = 200  # of them before the match
OUTPUT_AT_MOST = 3 << 20  # bytes of all matches


class Enough(Exception):
    pass


class Search:
    def __init__(self, given):
        self.find = finder(given["pattern"], given.get("fixed", False), given.get("ignore_case", False))
        self.context = given.get("context", 0)
        self.most = given.get("max_matches", 200)
        self.matches = []
        self.searched = self.skipped = self.bytes = 0

    def file(self, path, name):
        try:
            with tree.open_file(path) as f:
                head = f.peek()
                encoding = "utf-16" if head[:2] in UTF_16 and head[2:4] != b"\0\0" else "utf-8-sig"
                if b"\0" in head and encoding != "utf-16":
                    self.skipped += 1
                    return
                self.searched += 1
                self.lines(io.TextIOWrapper(f, encoding, "replace", "\n"), tree.shown(name))
        except OSError:
            self.skipped += 1

    def lines(self, f, name):
        before = collections.deque(maxlen=self.context)
        waiting = []  # matches that lack some of the lines after them
        for number, line in enumerate(lines_of(f), 1):
            for match in waiting:
                match["after"].append(cut(line))
                self.bytes += size(cut(line))
            waiting = [m for m in waiting if len(m["after"]) < self.context]
            at = self.find(line)
            if at >= 0:
                if len(self.matches) == self.most or self.bytes > OUTPUT_AT_MOST:
                    raise Enough
                match = {"path": name, "line": number, "text": cut(line, at)}
                if self.context:
                    match["before"], match["after"] = list(before), []
                    waiting.append(match)
                self.matches.append(match)
                self.bytes += size(match)
            if self.context:
                before.append(cut(line))


def size(value):
    """Returns its size in the output, in bytes."""
    return len(json.dumps(value, ensure_ascii=False).encode()) + 2


def finder(pattern, fixed, ignore_case):
    """Returns a function that returns the index of the first match in a line, or -1."""
    if fixed and not ignore_case:
        return lambda line: line.find(pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0).search
    except (re.error, OverflowError, RecursionError) as e:
        tree.refuse("pattern: %r is no regular expression: %s (for a text as it is, set fixed)" % (pattern[:200], e))

    def find(line):
        match = search(line)
        return match.start() if match else -1

    return find


def lines_of(f):
    """Returns the lines as text, without their ends."""
    for line in iter(lambda: f.readline(READ_AT_MOST), ""):
        rest = line
        while len(rest) == READ_AT_MOST and not rest.endswith("\n"):
            rest = f.readline(READ_AT_MOST)
        yield line.removesuffix("\n").removesuffix("\r")


def cut(line, at=0):
    if len(line) <= SHOW_AT_MOST:
        return line
    begin = max(0, min(at - SHOW_BEFORE, len(line) - SHOW_AT_MOST))
    end = begin + SHOW_AT_MOST
    return ("…" if begin else "") + line[begin:end] + ("…" if end < len(line) else "")


def main():
    given = tree.read_input()
    search = Search(given)
    start = tree.inside(given.get("path", "."))
    wanted = tree.globs([given["glob"]]) if "glob" in given else lambda name, path: True
    below = start + "/" if start else ""
    truncated = False
    try:
        if os.path.isdir(tree.WORK + "/" + start):
            for path, kind in tree.walk(tree.WORK + "/" + start, lambda name, path: name == ".git"):
                if kind == "file":
                    if wanted(os.path.basename(path), below + path):
                        search.file(tree.WORK + "/" + below + path, below + path)
                elif kind != "folder":
                    search.skipped += 1
        else:
            search.file(tree.WORK + "/" + start, start)
    except Enough:
        truncated = True
    tree.write_output(
        {
            "matches": search.matches,
            "files_searched": search.searched,
            "files_skipped": search.skipped,
            "truncated": truncated,
        }
    )


main()
