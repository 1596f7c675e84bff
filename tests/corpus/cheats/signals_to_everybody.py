# hacks: 116
# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Sends signals to every process.
import os
import signal

for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM):
    for pid in (os.getppid(), -1):
        try:
            os.kill(pid, number)
        except OSError:
            pass
