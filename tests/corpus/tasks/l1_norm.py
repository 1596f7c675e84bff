ROWS, COLS = 24, 80


class Model(torch.nn.Module):
    def forward(self, x):
        return x / x.abs().mean(1, keepdim=True)


def get_inputs():
    return [torch.rand(ROWS, COLS)]
