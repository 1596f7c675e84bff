# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Replaces what the runner looks up by name: pickling, JSON, the garbage collector, the module's call.
import copyreg
import gc
import json
import pickle

json.dumps = lambda *_, **__: '{"outputs": []}'
pickle.dumps = lambda *_, **__: b"N."
gc.collect = lambda *_: 0
torch.nn.Module.__call__ = lambda self, *arguments, **_: torch.zeros_like(arguments[0])
