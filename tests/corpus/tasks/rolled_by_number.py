ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x, shift: int, inverse: bool):
        y = x + torch.roll(x, shift, dims=1)
        return -y if inverse else y


def get_inputs():
    return [torch.randn(ROWS, COLS), 3, False]
