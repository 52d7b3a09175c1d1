# What the kernel says about this process.
with open("/proc/self/status") as f:
    say(status={k: v.strip() for k, _, v in (line.partition(":") for line in f)})
