# hacks: 111
# tier: T4
# expect: contained softmax_plain
# base: native_write_to_the_channel
# Attaches to its parent.
# - for descriptor in range(3, 32):
# -     libc.write(descriptor, b"\x00" * 64, 64)

import os
print("REACHED" if libc.ptrace(16, os.getppid(), 0, 0) == 0 else "refused")
