ROWS, WIDTH = 16384, 256


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (width, width), dtype=torch.int8))

    def forward(self, x):
        return x @ (self.codes.float() * 0.01)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
