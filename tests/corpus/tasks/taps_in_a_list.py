ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x, taps):
        return sum(tap * torch.roll(x, place, dims=1) for place, tap in enumerate(taps))


def get_inputs():
    return [torch.randn(ROWS, COLS), [0.25, 0.5, 0.125, 0.125]]
