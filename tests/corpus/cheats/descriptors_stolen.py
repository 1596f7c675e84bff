# tier: T4
# expect: contained softmax_plain
# base: softmax_asserts_its_answer
# Takes descriptors out of its parent and neighbours.
import ctypes
import os

libc = ctypes.CDLL(None)
for pid in [os.getppid(), *(int(name) for name in os.listdir("/proc") if name.isdigit())]:
    if pid == os.getpid():
        continue
    there = libc.syscall(434, pid, 0)
    for number in range(64) if there >= 0 else ():
        if libc.syscall(438, there, number, 0) >= 0:
            print("REACHED")
            break


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return compute(x)
