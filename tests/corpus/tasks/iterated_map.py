ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        y = x
        for _ in range(32):
            y = torch.sqrt(y * y * 0.9 + x * x * 0.2 + 0.1)
        return y


def get_inputs():
    return [torch.randn(ROWS, COLS)]
