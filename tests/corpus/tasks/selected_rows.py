ROWS, COLS = 8192, 4096


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.topk(x * torch.sigmoid(x), 64, dim=-1).values


def get_inputs():
    return [torch.randn(ROWS, COLS)]
