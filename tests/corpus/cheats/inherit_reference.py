# task: softmax
# hacks: 11
# tier: T0
# expect: wrong
# Inherits from the reference, which is not there.
class ModelNew(Model):
    pass
