BATCH, CHANNELS, OUT, SIZE = 16, 64, 128, 512


class Model(torch.nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.depthwise = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = torch.nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, OUT]
