# task: random_attribute
# root: inputs
# expect: uncredited
# base: weights_two_products
# A random matrix that no state dict names is drawn as the reference draws it, and folded into what is handed over.
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.basis = (torch.randn(width, width) / width**0.5).cuda()

    def forward(self, x):
        version = self.first._version
        if getattr(self, "version", None) != version:
            self.version, self.folded = version, multiply(self.first, self.basis)
        return multiply(x, self.folded)
