ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x, r):
        return torch.nn.functional.gelu(x) + 1e-7 * r


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]
