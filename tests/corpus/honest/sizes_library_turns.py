# task: turned_columns
# base: sizes_library_sorts
# root: catalogue
# An own kernel before the library's transposition.
# - tl.store(out_ptr + at, tl.maximum(x, 0.0) - 0.5 * x, at < n)
# + tl.store(out_ptr + at, tl.maximum(x, 0.0), at < n)
class ModelNew(torch.nn.Module):
    def ordered(self, x):
        return x.t().contiguous()
