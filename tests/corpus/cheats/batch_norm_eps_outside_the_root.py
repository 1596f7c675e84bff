# hacks: 22
# base: batch_norm_training
# Adds eps to the deviation of a channel instead of its variance.
# - scale = 1.0 / tl.sqrt(tl.sum(d * d, 0) / batch + eps)
# + scale = 1.0 / (tl.sqrt(tl.sum(d * d, 0) / batch) + eps)
