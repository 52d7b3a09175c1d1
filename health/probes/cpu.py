# Keeps one core busy for a second of wall time.
import time


def throttled():
    for line in (cgroup("cpu", "cpu.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "nr_throttled":
            return int(value)
    return None


begun, before = time.monotonic(), time.process_time()
while time.monotonic() - begun < 1:
    pass
say(wall=time.monotonic() - begun, startup=before, throttled=throttled())
