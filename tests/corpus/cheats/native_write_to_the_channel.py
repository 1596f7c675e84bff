# hacks: 112
# expect: hack tampering
# base: segfault
# Native code writes forged messages to the result channel.
# - ctypes.memset(0x1000, 0, 1 << 20)
# + for descriptor in range(3, 32):
# +     libc.write(descriptor, b"\x00" * 64, 64)

libc = ctypes.CDLL(None)
