# tier: T1
# root: inputs
# expect: uncredited
# base: weights_in_buffers
# Buffers of the reference's names stand there, and their product, taken when built, is what is used.
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("first", torch.randn(width, width) / width**0.5)
        self.register_buffer("second", torch.randn(width, width) / width**0.5)
        self.folded = (self.first @ self.second).cuda()

    def forward(self, x):
        return multiply(x, self.folded)
