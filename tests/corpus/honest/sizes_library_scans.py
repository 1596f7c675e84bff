# task: scanned_columns
# base: sizes_library_sorts
# An own kernel before the library's running sum.
# - tl.store(out_ptr + at, tl.maximum(x, 0.0) - 0.5 * x, at < n)
# + tl.store(out_ptr + at, 0.01 * x * tl.sigmoid(x), at < n)
class ModelNew(torch.nn.Module):
    def ordered(self, x):
        return torch.cumsum(x, dim=0)
