ROWS, COLS = 64, 512


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.elu(x, 1.5)


def get_inputs():
    return [torch.rand(ROWS, COLS)]
