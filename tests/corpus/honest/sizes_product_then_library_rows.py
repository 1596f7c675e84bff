# base: sizes_product_then_rows
# A product, whose rows PyTorch adds up.
# without: row_sums
class ModelNew(torch.nn.Module):
    def rows(self, y):
        return torch.logsumexp(y, -1)
