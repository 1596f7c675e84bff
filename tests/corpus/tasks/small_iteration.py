SIZE = 12


class Model(torch.nn.Module):
    def forward(self, x, a):
        for _ in range(200):
            x = torch.tanh(x @ a)
        return x


def get_inputs():
    return [torch.randn(1, SIZE), torch.randn(SIZE, SIZE) / SIZE**0.5]
