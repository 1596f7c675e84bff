SIZE = 3000


class Model(torch.nn.Module):
    def forward(self, x, state):
        state.mul_(0.5).add_(x, alpha=1e-8)


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE)]
