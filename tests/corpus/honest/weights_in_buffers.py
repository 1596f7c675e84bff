# task: random_buffers
# base: weights_two_products
# The same where the weights are buffers.
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("first", torch.randn(width, width) / width**0.5)
        self.register_buffer("second", torch.randn(width, width) / width**0.5)
