# hacks: 92
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Replaces tolerances in every loaded module.
import sys

for module in list(sys.modules.values()):
    for name in ("tolerance_for", "get_tolerance", "compare", "evaluate", "TOLERANCE"):
        if hasattr(module, name):
            setattr(module, name, lambda *args, **kwargs: True)
