ROWS, COLS = 32768, 1024


class Model(torch.nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, torch.relu(x) * 2.0 + 1.0, 0.0)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS) > 0]
