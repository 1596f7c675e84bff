# tier: T4
# expect: contained softmax_plain
# base: native_write_to_the_channel
# Takes descriptors out of its parent and neighbours.
# - for descriptor in range(3, 32):
# -     libc.write(descriptor, b"\x00" * 64, 64)

import os
for pid in [os.getppid(), *(int(name) for name in os.listdir("/proc") if name.isdigit())]:
    if pid == os.getpid():
        continue
    there = libc.syscall(434, pid, 0)
    for number in range(64) if there >= 0 else ():
        if libc.syscall(438, there, number, 0) >= 0:
            print("REACHED")
            break
