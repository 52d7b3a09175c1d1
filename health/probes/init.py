# Tries to read the container's first process, which runs as the same user, and to end it.
import signal
looks = {
    "fd": lambda: open("/proc/1/fd/1", "wb"),  # which frames would be forged with; root may list the others, as in a rootless engine
    "environ": lambda: open("/proc/1/environ", "rb").read(1),
    "maps": lambda: open("/proc/1/maps", "rb").read(1),
    "mem": lambda: open("/proc/1/mem", "rb"),
    "root": lambda: os.readlink("/proc/1/root"),
}
seen = {name: attempt(look) for name, look in looks.items()}
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
    attempt(lambda: os.kill(1, s))
with open("/proc/1/comm") as f:
    say(name=f.read().strip(), looks=seen)
