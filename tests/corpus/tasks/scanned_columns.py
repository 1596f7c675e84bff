ROWS, COLS = 8192, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x * torch.sigmoid(x), dim=0) * 0.01


def get_inputs():
    return [torch.randn(ROWS, COLS)]
