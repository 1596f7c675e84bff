ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, p, g):
        return p - 1e-7 * (g + 0.1 * p)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]
