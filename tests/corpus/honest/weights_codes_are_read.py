# task: quantised_linear
# base: weights_two_products
# A product with weights of 8 bits, which the kernel widens.
# - b = tl.load(b_ptr + k[:, None] * N + cols[None, :])
# + b = tl.load(b_ptr + k[:, None] * N + cols[None, :]).to(tl.float32) * 0.01


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (width, width), dtype=torch.int8))

    def forward(self, x):
        return multiply(x, self.codes)
