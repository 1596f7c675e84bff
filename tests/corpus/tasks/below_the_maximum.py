ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x - x.max(dim=-1, keepdim=True).values)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
