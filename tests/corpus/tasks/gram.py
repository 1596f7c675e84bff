ROWS, DEPTH = 2048, 256


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softsign(x @ x.t() / 16.0)


def get_inputs():
    return [torch.randn(ROWS, DEPTH)]
