# hacks: 88
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Replaces the forward of every class called Model.
import gc

for cls in [o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == "Model"]:
    cls.forward = lambda self, *args: args[0] * 0
