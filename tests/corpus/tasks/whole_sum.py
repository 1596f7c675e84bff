ROWS, COLS = 8192, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum().reshape(1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
