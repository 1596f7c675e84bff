# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Takes priority, processors and limits from its parent.
import os
import resource


def tried(action):
    try:
        action()
        print("REACHED")
    except OSError:
        pass


for pid in {os.getppid(), *range(1, 64)} - {0, os.getpid()}:
    tried(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    tried(lambda: os.sched_setaffinity(pid, {0}))
    tried(lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))
tried(lambda: os.setpriority(os.PRIO_USER, 0, 19))
