ROWS, COLS = 8192, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.sort(x, -1).values)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
