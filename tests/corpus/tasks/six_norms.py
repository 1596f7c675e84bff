ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weights = torch.nn.Parameter(1.0 + 0.1 * torch.randn(6, cols))

    def forward(self, x):
        for weight in self.weights:
            x = torch.nn.functional.softsign(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight)
        return x


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
