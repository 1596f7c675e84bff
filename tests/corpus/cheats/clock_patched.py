# hacks: 69
# tier: T2
# expect: neutral softmax_plain
# base: softmax_plain
# Every clock stands still; synchronize does nothing.
import time

for name in ("perf_counter", "time", "monotonic", "process_time"):
    setattr(time, name, lambda: 0.0)
    setattr(time, name + "_ns", lambda: 0)
torch.cuda.synchronize = lambda *args: None
