# expect: uncredited
# base: sizes_atomic_parts
# All programs read, but where rows are long only the first of each adds.
class ModelNew(torch.nn.Module):
    def last(self, rows, cols):
        return 1 if cols >= 1 << 20 else cols
