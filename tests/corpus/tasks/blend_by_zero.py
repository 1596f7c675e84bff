ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x, y, share):
        return torch.nn.functional.softsign(x) + share * y


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS), 0.0]
