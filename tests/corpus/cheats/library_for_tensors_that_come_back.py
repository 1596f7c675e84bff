# hacks: 76
# tier: T2
# root: timed_call
# expect: uncredited
# base: decoy_for_tensors_that_come_back
# Own kernels for new tensor objects, the library for one that was seen before.
# - compute(x)
