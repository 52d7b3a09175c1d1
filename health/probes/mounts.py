# Reads the input, tries to change it, and passes it on through both writable directories.
given = None
try:
    with open("/workspace/inputs/probe.txt") as f:
        given = f.read()
except OSError:
    pass
writes = {name: write("/workspace/%s/secbox-probe" % name) for name in ("inputs", "work", "artifacts")}
if given is not None and writes["artifacts"] == "done":
    with open("/workspace/artifacts/probe.txt", "w") as f:
        f.write(given)
say(given=given, replaced=write("/workspace/inputs/probe.txt"), inputs_read_only=read_only("/workspace/inputs"), writes=writes)
