# hacks: 115
# base: segfault
# Native code points stdout at other descriptors.
# - ctypes.memset(0x1000, 0, 1 << 20)

libc = ctypes.CDLL(None)
for descriptor in range(3, 32):
    libc.dup2(1, descriptor)
