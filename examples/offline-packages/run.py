"""Runs a program of Python with packages from local wheels: the container has no network.

    pip download --only-binary :all: --python-version 3.11 -d wheels requests     # where there is one
    PYTHONPATH=clients/python python3 examples/offline-packages/run.py wheels main.py requests

The wheels are inputs. The first exec installs them into the project's work/, in a directory that is
named after them; the next ones find them there.
"""

import hashlib
import os
import shlex
import sys

import secbox

wheels, program, *packages = sys.argv[1:]
inputs = secbox.input_files(wheels, below="wheels")
name = hashlib.sha256(repr((packages, inputs)).encode()).hexdigest()[:16]
script = f"""set -e
export PYTHONPATH=/workspace/work/packages/{name}
if [ ! -d $PYTHONPATH ]; then
  mkdir -p /workspace/work/packages
  new=$(mktemp -d /workspace/work/packages/new.XXXXXX)
  trap 'rm -rf "$new"' EXIT
  pip install -q --no-index --find-links /workspace/inputs/wheels --target $new {shlex.join(packages)}
  mv -T $new $PYTHONPATH 2>/dev/null || rm -rf "$new"  # another exec was first
fi
exec python /workspace/inputs/main.py
"""
inputs.append(secbox.input_file(program, "main.py"))
with secbox.Client(os.environ.get("SECBOX_SERVER", "http://127.0.0.1:8003"), os.environ.get("SECBOX_TOKEN", "")) as client:
    result = client.run(secbox.Job(script=script, project_id="offline-packages", inputs=inputs))
print(result.stdout, end="")
print(result.stderr, result.detail, end="", file=sys.stderr)
sys.exit(result.exit_code if result.exit_code is not None else 1)
