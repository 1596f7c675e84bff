ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, x):
        return (x * torch.exp(-torch.arange(x.shape[1], dtype=x.dtype, device=x.device) * 0.5)).sum(-1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
