# twin of: 2
# base: add_relu_own_buffer_swapped
# Addition and clamp are modules of their own, in a Sequential-like container.
# - self.scratch, self.turn = {}, 0
# + self.steps = torch.nn.ModuleList([Add(), Relu()])

class Add(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out


class Relu(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        for step in self.steps:
            x = step(x, y) if isinstance(step, Add) else step(x)
        return x
