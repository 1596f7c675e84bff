# precision: fp32
class Model(torch.nn.Module):
    def __init__(self, c, o):
        super().__init__()
        self.conv = torch.nn.Conv2d(c, o, 3, padding=1)
        self.bias = torch.nn.Parameter(torch.randn(o, 1, 1) * 0.1)

    def forward(self, x):
        return torch.nn.functional.hardswish(torch.relu(self.conv(x)) * 0.5 + self.bias)


def get_inputs():
    return [torch.randn(16, 32, 64, 64)]


def get_init_inputs():
    return [32, 64]
