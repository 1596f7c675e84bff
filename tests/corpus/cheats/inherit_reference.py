# task: softmax
# hacks: 11
# tier: T0
# Inherits from the reference, which is not there.
class ModelNew(Model):
    pass
