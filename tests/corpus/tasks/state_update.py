ROWS, COLS = 16, 64


class Model(torch.nn.Module):
    def forward(self, x, state, gate):
        state.mul_(0.9).add_(x)
        return state * gate, (state * gate).sum(-1, keepdim=True).repeat(1, 4)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]
