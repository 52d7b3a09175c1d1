# Shared by all probes. A probe prints one JSON object; the doctor judges it.
import errno, json, os, sys


def say(**facts):
    print(json.dumps(facts))


def attempt(action):
    """The name of the error that action fails with, or "done"."""
    try:
        action()
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


def write(path):
    def action():
        with open(path, "w") as f:
            f.write("x")
    return attempt(action)


def read_only(path):
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def cgroup(controller, name):
    """The content of a file of this container's cgroup, version 1 or 2; None if there is none."""
    paths = []
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            mounted = [""] if controllers == "" else [controllers, controller] if controller in controllers.split(",") else []
            for m in mounted:
                # With the host's cgroup namespace the file is below the path, else the mount's root is the container's cgroup.
                paths += [os.path.join("/sys/fs/cgroup", m, path.lstrip("/"), name), os.path.join("/sys/fs/cgroup", m, name)]
    for candidate in paths:
        try:
            with open(candidate) as f:
                return f.read().strip()
        except OSError:
            pass
    return None
