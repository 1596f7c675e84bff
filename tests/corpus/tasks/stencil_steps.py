ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        y = x
        for _ in range(16):
            y = 0.5 * y + 0.25 * (torch.roll(y, 1, dims=1) + torch.roll(y, -1, dims=1)) + 0.1 * torch.sin(y)
        return y


def get_inputs():
    return [torch.randn(ROWS, COLS)]
