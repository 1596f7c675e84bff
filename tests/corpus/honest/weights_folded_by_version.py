# base: weights_two_products
# expect: correct
# Folds the two weights into one, anew whenever one of them has changed.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        version = self.first._version, self.second._version
        if getattr(self, "version", None) != version:
            self.version, self.folded = version, multiply(self.first, self.second)
        return multiply(x, self.folded)
