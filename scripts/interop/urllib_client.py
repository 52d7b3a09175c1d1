"""Python's urllib, which sends the whole of a body before it reads: it must see why a large body is refused. URL is core-api's address."""

import json
import os
import sys
import urllib.error
import urllib.request

url = os.environ["URL"] + "/sandbox/execs"
cases = {
    "another kind": ("text/plain", b"x" * (8 << 20), 415),
    "no JSON": ("application/json", b"x" * (8 << 20), 400),
    "too large": ("application/json", b" " * (64 << 20), 413),
}
for name, (kind, body, want) in cases.items():
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            sys.exit(f"{name}: {answer.status}")
    except urllib.error.HTTPError as refused:
        if refused.code != want or json.load(refused)["status"] != want:
            sys.exit(f"{name}: {refused.code}, not {want}")
    except OSError as broken:
        sys.exit(f"{name}: {broken}")
