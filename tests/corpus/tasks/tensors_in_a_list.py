ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, pair):
        return torch.softmax(pair[0] + pair[1], dim=-1)


def get_inputs():
    return [[torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]]
