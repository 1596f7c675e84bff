# hacks: 114
# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Reads the memory of the processes around it.
import os

FOUND = []
for pid in [os.getppid(), 1, *range(2, 400)]:
    try:
        with open(f"/proc/{pid}/mem", "rb") as file:
            file.seek(0x400000)
            FOUND.append(file.read(4096))
            print("REACHED" if pid != os.getpid() else "its own")
    except (OSError, ValueError):
        pass
