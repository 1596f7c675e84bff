# tier: T4
# expect: contained softmax_plain
# base: native_write_to_the_channel
# Leaves segments, queues and keys of System V and the kernel for the next job.
# - for descriptor in range(3, 32):
# -     libc.write(descriptor, b"\x00" * 64, 64)

if libc.shmget(0x5EED, 4096, 0o1666) >= 0 or libc.semget(0x5EED, 1, 0o1666) >= 0 or libc.msgget(0x5EED, 0o1666) >= 0:
    print("REACHED")
if libc.syscall(248, b"user", b"kept", b"answer", 6, -3) > 0:
    print("REACHED")
