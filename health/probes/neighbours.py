# Looks for the files of this project and of another one, and for mounts of the other, everywhere.
own, other, project = sys.argv[1:]
found = {own: [], other: []}
for place, dirs, files in os.walk("/"):
    if place == "/":
        dirs[:] = [d for d in dirs if d not in ("proc", "sys", "dev")]
    for name in set(found) & set(files):
        found[name].append(os.path.join(place, name))
with open("/proc/self/mountinfo") as f:
    mounts = [line.strip() for line in f if project in line]


def flags(path):
    f = os.statvfs(path).f_flag
    return [name for name, flag in (("nosuid", os.ST_NOSUID), ("nodev", os.ST_NODEV)) if f & flag]


say(own=found[own], other=found[other], mounts=mounts, flags={d: flags("/workspace/" + d) for d in ("inputs", "work", "artifacts")})
