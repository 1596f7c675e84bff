ROWS, COLS = 4, 16777216


class Model(torch.nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) * 0.5


def get_inputs():
    return [torch.randn(ROWS, COLS)]
