ROWS, COLS = 32, 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(COLS))

    def forward(self, x):
        self.centre.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.centre


def get_inputs():
    return [torch.randn(ROWS, COLS)]
