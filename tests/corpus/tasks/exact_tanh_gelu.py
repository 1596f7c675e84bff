ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1e-3 * torch.nn.functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, COLS)]
