# hacks: 70
# tier: T2
# expect: neutral softmax_plain
# base: softmax_plain
# Clocks run at a tenth of the speed.
import time

REAL = time.perf_counter
time.perf_counter = lambda: REAL() / 10
EVENT = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda *args: EVENT(*args) / 10
