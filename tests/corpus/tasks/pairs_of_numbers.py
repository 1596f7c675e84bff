N = 16384


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.exp(-(x[:, None] - y[None, :]).abs()).sum(1)


def get_inputs():
    return [torch.randn(N), torch.randn(N)]
