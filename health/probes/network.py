# Lists the network interfaces that are up, and tries to reach each given host:port.
import socket


def is_up(name):
    try:
        with open("/sys/class/net/%s/flags" % name) as f:
            return bool(int(f.read(), 16) & 1)
    except OSError:
        return True


def reach(target):
    host, _, port = target.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(3)
            s.connect((host.strip("[]"), int(port)))
        return "connected"
    except socket.timeout:
        return "no answer"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


with open("/proc/net/dev") as f:
    names = [line.partition(":")[0].strip() for line in f if ":" in line]
say(up=[n for n in names if is_up(n)], all=names, reached={t: reach(t) for t in sys.argv[1:]})
