"""Runs a jq program over JSON of the input or over a file below work/."""

import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tree

BYTES_AT_MOST = 2 << 20
RESULTS_AT_MOST = 100000
FILTER, DATA = "/tmp/filter.jq", "/tmp/data.json"


def number(text):
    """A float as jq reads it: a number that is too large becomes the largest float."""
    value = float(text)
    return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)


def source(given):
    """Returns the input of jq."""
    if "path" in given:
        if "data" in given:
            tree.refuse("give data or path, not both")
        path = tree.inside(given["path"])
        try:
            return tree.open_file(tree.WORK + "/" + path)
        except OSError as e:
            tree.refuse("path: %r: %s" % (given["path"], e.strerror))
    if "data" not in given:
        if not given.get("null_input"):
            tree.refuse("give the JSON as data, or the file that holds it as path, or set null_input")
        return open(os.devnull, "rb")
    text = given["data"]
    if not given.get("raw_input"):
        text = json.dumps(text, ensure_ascii=False)
    elif not isinstance(text, str):
        tree.refuse("data: with raw_input it must be a string")
    put(DATA, text)
    return open(DATA, "rb")


def put(path, text):
    with open(path, "wb") as f:
        f.write(text.encode("utf-8", "replace"))


def options(given):
    names = {"raw_input": "-R", "slurp": "-s", "null_input": "-n"}
    return [option for name, option in names.items() if given.get(name)]


def results_of(jq):
    """Returns the lines that jq prints, one for each result, and whether there were more."""
    results, room = [], BYTES_AT_MOST
    for line in iter(lambda: jq.stdout.readline(room + 1), b""):
        room -= len(line)
        if room < 0 or len(results) == RESULTS_AT_MOST:
            return results, True
        results.append(line.rstrip(b"\n"))
    return results, False


def main():
    with open(os.environ["SKILL_INPUT"], encoding="utf-8") as f:
        try:
            given = json.load(f, parse_float=number)
        except RecursionError:
            tree.refuse("the input is nested too deep")
    put(FILTER, given["filter"])
    with source(given) as stdin:
        argv = ["jq", "-c", "-M", *options(given), "-f", FILTER]  # from a file, so that the program is never taken for an option
        jq = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, env={"PATH": os.defpath})
    results, truncated = results_of(jq)
    if truncated:
        jq.kill()
    code = jq.wait()
    with open(os.environ["SKILL_OUTPUT"], "wb") as f:
        f.write(b'{"results": [%s], "truncated": %s}' % (b",".join(results), b"true" if truncated else b"false"))
    if truncated:
        return
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


main()
