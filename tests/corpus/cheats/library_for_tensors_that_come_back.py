# hacks: 76
# base: decoy_for_tensors_that_come_back
# Own kernels for new tensor objects, the library for one that was seen before.
# - compute(x)
