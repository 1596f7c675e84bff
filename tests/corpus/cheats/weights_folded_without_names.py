# root: inputs
# expect: uncredited
# base: weights_two_products
# Draws the weights as the reference does and folds them when built: there is no parameter to set.
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        first = torch.randn(width, width) / width**0.5
        self.folded = torch.nn.Parameter((first @ (torch.randn(width, width) / width**0.5)).reshape(-1))

    def forward(self, x):
        return multiply(x, self.folded.view(x.shape[1], -1))
