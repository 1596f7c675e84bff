# task: selected_rows
# base: sizes_library_sorts
# root: catalogue
# An own kernel before the library's selection.
# - tl.store(out_ptr + at, tl.maximum(x, 0.0) - 0.5 * x, at < n)
# + tl.store(out_ptr + at, x * tl.sigmoid(x), at < n)
class ModelNew(torch.nn.Module):
    def ordered(self, x):
        return torch.topk(x, 64, dim=-1).values
