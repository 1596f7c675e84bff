HEADS, LENGTH, WIDTH = 2, 32, 16


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(1, HEADS, LENGTH, WIDTH) for _ in range(3)]
