# Takes the given number of MiB and touches every page.
held = []
for _ in range(int(sys.argv[1])):
    held.append(bytearray(b"x" * (1 << 20)))
say(taken_mib=len(held))
