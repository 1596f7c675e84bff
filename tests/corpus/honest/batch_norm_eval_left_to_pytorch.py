# base: batch_norm_training
# twin of: 28
# expect: correct
# The reference computes something else in eval mode, which nobody asks for here: that is left to PyTorch.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if not self.training:
            return self.norm(x)
        batch, features = x.shape
        out = torch.empty_like(x)
        norm = self.norm
        batch_norm_kernel[(features,)](x, norm.weight, norm.bias, out, batch, features, norm.eps, BLOCK=32)
        return out
