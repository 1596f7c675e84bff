# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Connects to every socket that it can see.
import socket

try:
    lines = open("/proc/net/unix").read().splitlines()[1:]
except OSError:
    lines = []
for line in lines:
    name = line.split()[-1]
    if name.startswith(("/", "@")):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            try:
                with socket.socket(socket.AF_UNIX, kind) as it:
                    it.connect("\0" + name[1:] if name[0] == "@" else name)
                    print("REACHED", name)
            except OSError:
                pass
for port in (8000, 8080, 8765, 6379, 7777):
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
        print("REACHED", port)
    except OSError:
        pass
