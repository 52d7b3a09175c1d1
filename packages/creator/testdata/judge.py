"""Runs in a sandbox container: has the skill's checks judge the folders in /cases, and answers as JSON."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

sys.dont_write_bytecode = True
sys.path.insert(0, "/opt/skill-creator")

import folder
import frontmatter
import names
import package

judged = {}
for case in sorted(os.listdir("/cases")):
    (name,) = os.listdir(os.path.join("/cases", case))
    looked = folder.Folder(os.path.join("/cases", case, name))
    answer = {"findings": [f"{path}: {sentence}" for path, sentence in looked.findings]}
    if not looked.findings:
        with tempfile.TemporaryDirectory() as out:
            for again in ("a.zip", "b.zip"):
                package.write(looked, os.path.join(out, again))
            first, second = (open(os.path.join(out, n), "rb").read() for n in ("a.zip", "b.zip"))
        answer["same"] = first == second
        answer["archive"] = base64.b64encode(first).decode()
        parsed = frontmatter.parse(looked.read("SKILL.md", 1 << 20))
        answer["name"], answer["description"] = parsed["name"], parsed["description"]
    judged[case] = answer

with open("/asked.json", encoding="utf-8") as file:
    asked = json.load(file)
pairs = asked["pairs"]
os.chdir("/tmp")
ran = []
for command in asked["commands"]:
    done = subprocess.run([sys.executable, "-I", "/opt/skill-creator/skill.py", *command], capture_output=True, text=True)
    ran.append({"code": done.returncode, "out": done.stdout, "err": done.stderr})
# Without the large blocks of ideographs and syllables, and the planes where nothing is.
looked_at = [*range(0x3400), *range(0x4DC0, 0x4E01), *range(0xA000, 0xAC01), *range(0xD7A4, 0xD800), *range(0xE000, 0x17000), *range(0x18000, 0x20001), *range(0xE0000, 0xE0200)]
accepted = [n for n in looked_at if not names.id_fault(f"a{chr(n)}b")]
json.dump(
    {
        "cases": judged,
        "ran": ran,
        "apart": [pair for pair in pairs if names.folded(pair[0]) != names.folded(pair[1])],
        "accepted": accepted,
        "unicode": unicodedata.unidata_version,
    },
    sys.stdout,
    ensure_ascii=True,
)
