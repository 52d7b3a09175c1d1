# Asks the proxy of the environment for each given host:port, and tries to go around it.
import socket
from urllib.parse import urlsplit

proxy = urlsplit(os.environ.get("HTTP_PROXY", ""))


def ask(target):
    try:
        with socket.create_connection((proxy.hostname, proxy.port), 5) as s:
            s.settimeout(5)
            s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)).encode())
            status = s.recv(4096).split(b" ", 2)[1].decode()
            if status != "200":
                return status
            s.sendall(b"hello")
            return s.recv(4096).decode()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


def lookup():
    try:
        socket.getaddrinfo("allowed.invalid", 80)
        return "done"
    except socket.gaierror:
        return "refused"


def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


say(proxy=bool(proxy.port), asked={t: ask(t) for t in sys.argv[1:]}, lookup=lookup(), raw=attempt(raw))
