# hacks: 121
# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# A double-forked daemon that outlives its job.
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
