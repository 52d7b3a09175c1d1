import importlib.metadata, json, os, subprocess, sys

found = []


def add(kind, name, version, arch=""):
    if isinstance(name, str) and isinstance(version, str) and name:
        found.append({"kind": kind, "name": name, "version": version, "arch": arch})


try:
    form = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True).stdout
except OSError:  # no Debian
    listed = ""
for line in listed.splitlines():
    status, name, version, arch = line.split("\t")
    if status == "installed":
        add("deb", name, version, arch)

for package in importlib.metadata.distributions():
    add("pypi", package.metadata["Name"], package.version)

for top in ("/usr/local/lib/node_modules", "/usr/lib/node_modules"):
    for path, dirs, files in os.walk(top):
        above = os.path.basename(os.path.dirname(path))
        if "package.json" in files and (above == "node_modules" or above.startswith("@")):
            try:
                with open(os.path.join(path, "package.json"), encoding="utf-8") as f:
                    package = json.load(f)
                add("npm", package.get("name"), package.get("version"))
            except (OSError, ValueError, AttributeError):
                pass

json.dump(found, sys.stdout)
