ROWS, COLS = 1024, 128


class Model(torch.nn.Module):
    def forward(self, x, r):
        return x * torch.sigmoid(x) + 1e-7 * r


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]
