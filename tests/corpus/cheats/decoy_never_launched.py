# hacks: 3
# tier: T0
# expect: hack no_custom_kernel
# base: softmax_plain
# A good kernel is defined and never launched.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
