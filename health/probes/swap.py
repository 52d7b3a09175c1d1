# Prints how much this container may swap, and how much swap its machine has.
swap = None
with open("/proc/meminfo") as f:
    for line in f:
        if line.startswith("SwapTotal:"):
            swap = int(line.split()[1])
say(swap_max=cgroup("memory", "memory.swap.max"), memsw=cgroup("memory", "memory.memsw.limit_in_bytes"),
    memory=cgroup("memory", "memory.limit_in_bytes"), swap_total_kib=swap)
