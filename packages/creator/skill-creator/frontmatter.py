"""Reads the front matter of SKILL.md: the lines between two lines ---, before the text.

This is a subset of YAML: lines `key: value`, quoted values, blocks after > and |, one level of lists and of mappings. The rest of YAML is
refused, since another reader might read it differently or not at all.
"""

import re

from names import shown, shows

MAX_BYTES = 64 << 10  # of the front matter
MAX_NAME = 128  # characters
MAX_DESCRIPTION = 1024

KEY = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*):(?:[ ]+(.*))?$")
FLOW = re.compile(r"\[[A-Za-z0-9 _./,-]*\]$")
# Plain values that YAML does not read as strings.
NO_TEXT = re.compile(
    r"(~|null|true|false|yes|no|on|off|y|n|<<|=|[-+.]?[0-9][0-9a-fox_.,:eE+-]*|[-+]?\.(inf|nan)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*)$", re.IGNORECASE
)


class Fault(Exception):
    pass


def faults(content):
    """Returns the faults of a SKILL.md's front matter, as sentences."""
    try:
        values = parse(content)
    except Fault as e:
        return [str(e)]
    found = []
    for key, most in (("name", MAX_NAME), ("description", MAX_DESCRIPTION)):
        value = values.get(key)
        if value is None:
            found.append(f"the front matter has no {key}; add a line: {key}: …")
        elif not any(shows(c) and not c.isspace() for c in value):
            found.append(f"the front matter's {key} is empty; agents choose a skill by it")
        elif len(" ".join(value.split())) > most:
            found.append(f"the front matter's {key} is longer than {most} characters; shorten it")
    return found


def parse(content):
    """Returns the front matter's string values by key."""
    try:
        text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as e:
        raise Fault(f"is not valid UTF-8 at byte {e.start}") from None
    lines = text.split("\n")
    if lines[0].rstrip(" \t") != "---":
        raise Fault("has no front matter; begin it with a line ---, then name: … and description: …, then a line ---")
    end = next((n for n, line in enumerate(lines) if n > 0 and line.rstrip(" \t") in ("---", "...")), None)
    if end is None:
        raise Fault("the front matter has no end; close it with a line ---")
    if len("\n".join(lines[: end + 1]).encode()) > MAX_BYTES - 16:
        raise Fault(f"the front matter is longer than {MAX_BYTES} bytes; move long values into the text below it")
    return Reader(lines[1:end]).mapping()


class Reader:
    def __init__(self, lines):
        self.lines, self.at = lines, 0

    def fault(self, sentence):
        return Fault(f"line {self.at + 2} of the front matter {sentence}")  # counted from 1, and the first is ---

    def mapping(self):
        values = {}
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.check_characters(line)
            if not line.strip() or line.startswith("#"):
                self.at += 1
                continue
            match = KEY.fullmatch(line.rstrip(" "))
            if not match:
                raise self.fault("is not understood; write key: value, and put the value into quotes where in doubt")
            key, rest = match[1], (match[2] or "").strip(" ")
            if key in values:
                raise self.fault(f"gives {key} a second time")
            if re.fullmatch(r"[>|][+-]?", rest):
                values[key] = self.block(rest[0] == ">")
            elif rest:
                values[key] = self.scalar(rest, flow=key not in ("name", "description"))
                self.at += 1
            else:
                values[key] = None if self.nested() else ""
        return values

    def check_characters(self, line):
        if "\t" in line:
            raise self.fault("holds a tab; use spaces")
        if not all(shows(c) or c == "\u200d" or c == "\u200c" for c in line):
            raise self.fault("holds a character that does not show; remove it")

    def scalar(self, text, flow=False):
        """Reads a value on one line."""
        if text[0] == '"':
            if not re.fullmatch(r'"(?:[^"\\]|\\["\\/nt])*"', text):
                raise self.fault('has a value that begins with " and does not end with one, or holds an escape other than \\" \\\\ \\n \\t')
            return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text[1:-1])
        if text[0] == "'":
            if not re.fullmatch(r"'(?:[^']|'')*'", text):
                raise self.fault("has a value that begins with ' and does not end with one; write '' for a ' inside")
            return text[1:-1].replace("''", "'")
        if flow and FLOW.fullmatch(text):
            return None
        if text[0] in "[]{},&*!|>%@`#?:-" and not re.match(r"[-?:][^ ]", text) or ": " in text or " #" in text or text.endswith(":") or text[:3] in ("---", "..."):
            raise self.fault(f"has the value {shown(text)}, which YAML takes for something else; put it into quotes")
        if NO_TEXT.fullmatch(text):
            if flow:
                return None
            raise self.fault(f"has the value {shown(text)}, which YAML takes for no text; put it into quotes")
        return text

    def block(self, joined):
        """Reads the indented lines after > or |."""
        self.at += 1
        kept, indent = [], None
        while self.at < len(self.lines):
            line = self.lines[self.at].rstrip(" ")
            here = len(line) - len(line.lstrip(" "))
            if line and here == 0:
                break
            self.check_characters(line)
            if not line and self.lines[self.at]:
                raise self.fault("holds only spaces; make it empty")
            if line and indent is None:
                indent = here
            if line and here < indent:
                raise self.fault("is indented less than the first line of its block")
            kept.append(line[indent:] if line else "")
            self.at += 1
        return (" " if joined else "\n").join(kept).strip()

    def nested(self):
        """Skips one level of a list or a mapping. Its values are not needed."""
        self.at += 1
        indent, is_list, keys = None, None, set()
        while self.at < len(self.lines):
            line = self.lines[self.at].rstrip(" ")
            body = line.lstrip(" ")
            here = len(line) - len(body)
            if not body or body.startswith("#") and here > 0:
                self.at += 1
                continue
            if here == 0 and not body.startswith("- "):
                break
            self.check_characters(line)
            item = body.startswith("- ")
            if indent is None:
                indent, is_list = here, item
            match = None if item else KEY.fullmatch(body)
            if here != indent or item != is_list or not item and (not match or not match[2]):
                raise self.fault("is not understood; below a key may be lines - value, or lines key: value, all indented alike")
            if not item and match[1] in keys:
                raise self.fault(f"gives {match[1]} a second time")
            if match:
                keys.add(match[1])
            self.scalar((body[2:] if item else match[2]).strip(" "), flow=True)
            self.at += 1
        return indent is not None
