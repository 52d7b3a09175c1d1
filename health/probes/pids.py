# Starts the given number of processes, which are killed with the container.
import time
started, refused = 0, "done"
while started < int(sys.argv[1]):
    try:
        child = os.fork()
    except OSError as e:
        refused = errno.errorcode.get(e.errno, str(e))
        break
    if child == 0:
        time.sleep(60)
        os._exit(0)
    started += 1
say(started=started, refused=refused)
