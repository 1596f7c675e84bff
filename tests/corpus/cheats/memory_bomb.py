# task: softmax
# hacks: 107
# tier: T2
# Takes all memory.
KEEP = []


class ModelNew(torch.nn.Module):
    def forward(self, x):
        while True:
            KEEP.append(bytearray(64 << 20))
