"""Makes the folder of a new skill: texts to be filled in, and for a tool a manifest and a program that runs as it is."""

import json
import os
import unicodedata

SKILL = """---
name: {name}
description: {description}
---

# {title}

What the skill is for, in a sentence or two.

## How to use it

1. The steps, as an agent should take them.
2. Files beside this one by their relative paths, and what each is for.

## What comes out

What there is afterwards, and how to tell that it worked.
"""

TOOL = """
## Input and output

`{run}` reads the input, a JSON object, from the file that `$SKILL_INPUT` names, and writes its output, a JSON object, to the file that
`$SKILL_OUTPUT` names. `manifest.json` says what may be in them. The project's files are in `/workspace/work`.
"""

RUN = '''"""Counts the lines of a text: a beginning, to be replaced."""

import json
import os

with open(os.environ["SKILL_INPUT"], encoding="utf-8") as file:
    inputs = json.load(file)

outputs = {"lines": len(inputs["text"].splitlines())}

with open(os.environ["SKILL_OUTPUT"], "w", encoding="utf-8") as file:
    json.dump(outputs, file)
'''


def manifest(tool, name, description):
    return {
        "schema_version": "1",
        "id": tool,
        "name": name,
        "description": description,
        "interface": {
            "inputs": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The text."}},
                "required": ["text"],
                "additionalProperties": False,
            },
            "outputs": {
                "type": "object",
                "properties": {"lines": {"type": "integer", "minimum": 0, "description": "How many lines the text has."}},
                "required": ["lines"],
                "additionalProperties": False,
            },
        },
        "runtime": {"kind": "docker", "entrypoint": ["python3", "-I", "./run.py"]},
        "permissions": {"fs": {"read": ["inputs/**", "work/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
        "limits": {"timeout_ms": 60000},
    }


def files(name, tool, description):
    """Returns the new skill's files: text by path."""
    skill = SKILL.format(name=quoted(name), description=quoted(description), title=name)
    if not tool:
        return {"SKILL.md": skill}
    text = json.dumps(manifest(tool, name, description), indent=2, ensure_ascii=False) + "\n"
    return {"SKILL.md": skill + TOOL.format(run="run.py"), "manifest.json": text, "run.py": RUN}


def quoted(text):
    """Returns a value of the front matter that YAML can only read as a string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def make(directory, name, tool, description):
    """Makes the folder, which must not exist, and returns its path."""
    folder = os.path.join(directory, unicodedata.normalize("NFC", tool or name))
    os.makedirs(directory, exist_ok=True)
    os.mkdir(folder)
    for path, text in files(name, tool, description).items():
        with open(os.path.join(folder, path), "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return folder
