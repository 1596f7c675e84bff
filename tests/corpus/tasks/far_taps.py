ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = torch.nn.Parameter(torch.randn(12))

    def forward(self, x):
        out = torch.zeros_like(x)
        for place, tap in enumerate(self.taps):
            out = out + tap * torch.roll(x, 7 * place, dims=1)
        return out


def get_inputs():
    return [torch.randn(ROWS, COLS)]
