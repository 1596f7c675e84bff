# hacks: 107
# tier: T2
# expect: contained softmax_plain
# base: softmax_asserts_its_answer
# Forks without end.
import os


class ModelNew(torch.nn.Module):
    def forward(self, x):
        while True:
            try:
                os.fork()
            except OSError:
                break
        return compute(x)
