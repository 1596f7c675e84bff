# task: folded_linears
# expect: neutral weights_folded_by_version
# base: weights_two_products
# Folds the weights where they are loaded, outside of every call.
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.second = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.register_load_state_dict_post_hook(self.fold)
        self.folded = None

    def fold(self, *_):
        self.folded = multiply(self.first, self.second)

    def forward(self, x):
        if self.folded is None:
            self.fold()
        return multiply(x, self.folded)
