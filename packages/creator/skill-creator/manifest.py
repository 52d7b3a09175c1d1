"""Checks a manifest.json against its schema and the rules beyond that, and the main points of the two schemas in it.

`core-api skills lint` and the server compile the two schemas and find the rest.
"""

import json
import math
import os
import re

from names import is_utf8, shown

MAX_DEPTH = 64
MAX_VALUES = 200_000
MAX_DIGITS = 1000
MAX_PATTERN = 1000  # bytes
MAX_SUBSCHEMAS = 2000
MAX_PROGRAM, MAX_PROGRAMS = 10_000, 50_000  # instructions of compiled patterns, about
MAX_REPEATS = 1000
# Syntax of Python's regular expressions that the server's RE2 does not have. Escaped backslashes are removed before.
NOT_RE2 = re.compile(r"\(\?(?![:ims-])|\\[1-9ZgGkKXuUN]|\\x(?![0-9A-Fa-f]{2})|\\[^\x00-\x7f]|\[[^\]]*\\b|[*+?}][+]")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")

# The keywords that hold schemas: one, a list of them, an object of them by name.
ONE = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties", "maxContains", "minContains")
BOUNDS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")


class Number(float):
    """A JSON number that remembers how it was written."""

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number

    @property
    def whole(self):
        return math.isfinite(self) and self == int(self)


class Fault(Exception):
    pass


def faults(raw, folder, starts):
    """Returns the faults as (JSON pointer, sentence). starts has the skill's visible files, and whether each can be started directly."""
    try:
        document = parse(raw)
    except Fault as e:
        return [("", str(e))]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "manifest.schema.json"), encoding="utf-8") as file:
        found = list(validate(json.load(file), document, ""))
    if isinstance(document, dict):
        found += beyond(document, folder)
        for side in ("inputs", "outputs"):
            schema = at(document, "interface", side)
            if isinstance(schema, dict):
                found += Schema(schema, f"/interface/{side}").found
        if not found:
            found += entrypoint(document["runtime"]["entrypoint"], starts)
    return found


def parse(raw):
    """Parses the document. Repeated names, NaN and values beyond the server's bounds are faults."""
    if raw.startswith(b"\xef\xbb\xbf"):
        raise Fault("begins with a byte order mark; save it without one")
    try:
        text = raw.decode("utf-8")
        document = json.loads(text, object_pairs_hook=unique, parse_float=number, parse_int=number, parse_constant=constant)
    except UnicodeDecodeError as e:
        raise Fault(f"is not valid UTF-8 at byte {e.start}") from None
    except json.JSONDecodeError as e:
        raise Fault(f"is no JSON: {e.msg} in line {e.lineno}, column {e.colno}") from None
    except RecursionError:
        raise Fault(f"is nested deeper than {MAX_DEPTH} levels") from None
    level, values = [document], 0
    for depth in range(MAX_DEPTH + 1):
        values += len(level)
        below = []
        for value in level:
            if isinstance(value, dict):
                below += list(value) + list(value.values())
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not is_utf8(value):
                raise Fault("holds half of a surrogate pair (\\ud800 to \\udfff), which is no character")
        level = below
        if values > MAX_VALUES:
            raise Fault(f"holds more than {MAX_VALUES} values")
        if depth == MAX_DEPTH and any(isinstance(v, (dict, list)) for v in level):
            raise Fault(f"is nested deeper than {MAX_DEPTH} levels")
    return document


def unique(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Fault(f"gives {shown(twice)} more than once in one object")
    return members


def number(text):
    exponent = re.search(r"[eE](.*)", text)
    if len(text) > MAX_DIGITS:
        raise Fault(f"holds a number of more than {MAX_DIGITS} characters")
    if math.isinf(float(text)) or exponent and (len(exponent[1]) > 6 or abs(int(exponent[1])) > 400):
        raise Fault("holds a number that does not fit into 64 bits")
    return Number(text)


def constant(text):
    raise Fault(f"holds {text}, which is no JSON")


def kind(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return {dict: "object", list: "array", str: "string", Number: "number"}.get(type(value), "number")


def validate(schema, value, pointer):
    """Validates a value against the schema of manifests; it knows the keywords of that schema."""
    if "const" in schema and value != schema["const"]:
        yield pointer, f"must be {json.dumps(schema['const'])}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield pointer, "must be one of " + ", ".join(json.dumps(v) for v in schema["enum"])
        return
    want = schema.get("type")
    if want and kind(value) != want and not (want == "integer" and isinstance(value, Number) and value.whole):
        yield pointer, f"must be of type {want}, not {kind(value)}"
        return
    if isinstance(value, dict):
        yield from members(schema, value, pointer)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value)):
            yield pointer, f"must have {schema.get('minItems', 0)} to {schema.get('maxItems', 'any number of')} elements"
        if schema.get("uniqueItems") and any(v in value[:n] for n, v in enumerate(value)):
            yield pointer, "holds an element twice"
        for n, element in enumerate(value):
            yield from validate(schema.get("items", {}), element, f"{pointer}/{n}")
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
            yield pointer, f"must have {schema.get('minLength', 0)} to {schema.get('maxLength', 'any number of')} characters"
        elif "pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            yield pointer, f"has not the form {schema['pattern']}: {schema.get('description', '')}".rstrip(": ")
    elif isinstance(value, Number):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield pointer, f"must be from {schema.get('minimum')} to {schema.get('maximum')}"


def members(schema, value, pointer):
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{pointer}/{name}", "is missing"
    for name, member in value.items():
        if name in properties:
            yield from validate(properties[name], member, f"{pointer}/{name}")
        elif schema.get("additionalProperties") is False:
            yield pointer + "/" + escaped(name), f"is not known; there is {', '.join(properties)}"


def escaped(name):
    return shown(name).replace("~", "~0").replace("/", "~1")


def at(value, *path):
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def beyond(document, folder):
    """Checks the rules that the schema of manifests cannot express."""
    found = []
    name = document.get("id")
    if isinstance(name, str) and name != folder:
        found.append(("/id", f"is {shown(name)}, but the folder is called {shown(folder)}; they must be equal"))
    for side, pattern, why in (("read", "inputs/**", "the skill's folder and its input are there"), ("write", "artifacts/**", "the skill's output is there")):
        listed = at(document, "permissions", "fs", side)
        if isinstance(listed, list) and pattern not in listed:
            found.append((f"/permissions/fs/{side}", f'must hold "{pattern}": {why}'))
    properties, required = at(document, "interface", "inputs", "properties"), at(document, "interface", "inputs", "required")
    if isinstance(properties, dict) and "project_id" in properties or isinstance(required, list) and "project_id" in required:
        found.append(("/interface/inputs", "names project_id, which is the caller's project; choose another name"))
    limits = document.get("limits")
    for name, value in limits.items() if isinstance(limits, dict) else ():
        if isinstance(value, Number) and name != "cpu_cores" and not re.fullmatch(r"-?[0-9]+", value.text):
            found.append((f"/limits/{escaped(name)}", "must be written in digits, without fraction and exponent"))
    return found


def entrypoint(argv, starts):
    found = []
    for n, element in enumerate(argv):
        if not element.startswith("./"):
            continue
        path, pointer = element[2:], f"/runtime/entrypoint/{n}"
        if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
            found.append((pointer, "must name a file below the skill's folder: ./ and a path with single slashes, without .. and without backslashes"))
        elif path not in starts:
            found.append((pointer, f"names {shown(element)}, which is no file of the skill's folder, or a hidden one"))
        elif n == 0 and not starts[path]:
            found.append((pointer, f'names {shown(element)}, which does not begin with #!: put its interpreter before it, as in ["python3", "-I", "./run.py"]'))
    return found


class Schema:
    """Walks one of the two schemas of the interface."""

    def __init__(self, schema, pointer):
        self.found, self.seen, self.refs, self.programs = [], 0, [], 0
        self.look(schema, pointer)
        for ref, where in self.refs:
            _, group, name = ref.split("/")
            if not isinstance(at(schema, group, name), (dict, bool)):
                self.add(where, f"names {shown(ref)}, which is not there")
        if self.seen > MAX_SUBSCHEMAS:
            self.add(pointer, f"has more than {MAX_SUBSCHEMAS} subschemas")

    def add(self, pointer, sentence):
        self.found.append((pointer, sentence))

    def look(self, schema, pointer):
        self.seen += 1
        if isinstance(schema, bool) or self.seen > MAX_SUBSCHEMAS:
            return
        if not isinstance(schema, dict):
            self.add(pointer, "must be a schema: an object, true or false")
            return
        for keyword, value in schema.items():
            self.keyword(keyword, value, f"{pointer}/{escaped(keyword)}")

    def keyword(self, keyword, value, pointer):
        if keyword in ONE:
            self.look(value, pointer)
        elif keyword in LISTS or keyword in NAMED:
            self.several(keyword, value, pointer)
        elif keyword == "type":
            names = value if isinstance(value, list) else [value]
            if not names or any(not isinstance(n, str) or n not in TYPES for n in names) or len(set(names)) < len(names):
                self.add(pointer, f"must be one of {', '.join(TYPES)}, or a list of them")
        elif keyword in ("required", "enum", "examples"):
            if not isinstance(value, list) or keyword == "required" and (any(not isinstance(v, str) for v in value) or len(set(value)) < len(value)):
                self.add(pointer, "must be a list" + (" of names, none twice" if keyword == "required" else ""))
        elif keyword in COUNTS or keyword in BOUNDS or keyword == "multipleOf":
            if not isinstance(value, Number) or keyword in COUNTS and (value < 0 or not value.whole) or keyword == "multipleOf" and value <= 0:
                self.add(pointer, "must be a number" + (", whole and not negative" if keyword in COUNTS else ""))
        elif keyword == "pattern":
            self.pattern(value, pointer)
        elif keyword in ("title", "description", "format", "$comment", "contentEncoding", "contentMediaType"):
            if not isinstance(value, str):
                self.add(pointer, "must be a text")
        elif keyword in ("uniqueItems", "readOnly", "writeOnly", "deprecated"):
            if not isinstance(value, bool):
                self.add(pointer, "must be true or false")
        elif keyword in ("$ref", "$dynamicRef"):
            self.reference(value, pointer)
        elif keyword == "$schema":
            if not isinstance(value, str) or value.removesuffix("#") != DIALECT:
                self.add(pointer, f"must be {DIALECT}, or be left out")
        elif keyword == "$id" or keyword.startswith("$") and keyword != "$vocabulary" or keyword in ("dependencies", "dependentRequired"):
            self.add(pointer, "is not supported and not needed; leave it out")

    def several(self, keyword, value, pointer):
        if keyword in LISTS and isinstance(value, list) and value:
            for n, one in enumerate(value):
                self.look(one, f"{pointer}/{n}")
        elif keyword in NAMED and isinstance(value, dict):
            for name, one in value.items():
                if keyword == "patternProperties":
                    self.pattern(name, pointer)
                self.look(one, f"{pointer}/{escaped(name)}")
        else:
            self.add(pointer, "must be a list of schemas, not empty" if keyword in LISTS else "must be an object of schemas by name")

    def reference(self, value, pointer):
        if not isinstance(value, str) or not re.fullmatch(r"#(/(\$defs|definitions)/[A-Za-z0-9_.-]+)?", value):
            self.add(pointer, "must be # or #/$defs/NAME: a schema refers to its own parts only")
        elif value != "#":
            self.refs.append((value, pointer))

    def pattern(self, value, pointer):
        if not isinstance(value, str) or len(value.encode("utf-8", "replace")) > MAX_PATTERN:
            self.add(pointer, f"must be a regular expression of at most {MAX_PATTERN} bytes")
            return
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as e:
            self.add(pointer, f"is no regular expression: {e}")
            return
        if NOT_RE2.search(value.replace(r"\\", "")):
            self.add(pointer, "has syntax that RE2 does not know: look-around, references, possessive or named groups, escapes such as \\u or \\Z")
        single, groups = ([int(n) for n in re.findall(before + r"\{(?:[0-9]*,)?([0-9]+)\}", value)] for before in (r"(?<!\))", r"\)"))
        if max(single, default=1) * math.prod(groups) > MAX_REPEATS or re.search(r"\{[0-9]{4,},?\}", value):
            self.add(pointer, f"repeats something more than {MAX_REPEATS} times, which RE2 does not do")
        size = (len(value) + 2 * sum(single)) * math.prod(max(n, 1) for n in groups)
        self.programs += size
        if size > MAX_PROGRAM or self.programs > MAX_PROGRAMS:
            self.add(pointer, f"repeats too much: a pattern may take {MAX_PROGRAM} instructions, all of a schema {MAX_PROGRAMS}; use maxLength for a length")
