SIZE = 2000


class Model(torch.nn.Module):
    def forward(self, x, y, mask):
        return torch.where(mask, x + y, 0.0)


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE), torch.ones(SIZE, dtype=torch.bool)]
