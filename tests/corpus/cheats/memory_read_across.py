# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Reads the memory of its parent and neighbours.
import os

for pid in [os.getppid(), *(int(name) for name in os.listdir("/proc") if name.isdigit())]:
    if pid == os.getpid():
        continue
    for name in ("mem", "maps", "environ", "fd/0"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if name == "mem" or file.read(1):
                    print("REACHED", name)
        except OSError:
            pass
