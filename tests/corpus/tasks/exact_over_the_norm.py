ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, x):
        return x / ((x * x).sum(-1, keepdim=True).sqrt() + 1e-12)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
