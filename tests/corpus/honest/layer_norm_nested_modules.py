# twin of: 2
# base: layer_norm_plain
# The kernel is launched by a nested module.
# - self.norm = torch.nn.LayerNorm(96)
# + self.norm = FastNorm(96)

class FastNorm(torch.nn.LayerNorm):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        layer_norm_kernel[(rows,)](x, self.weight, self.bias, out, cols, self.eps, BLOCK=triton.next_power_of_2(cols))
        return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.norm(x)
