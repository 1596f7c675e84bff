# precision: bf16
ROWS, COLS = 32, 96


class Model(torch.nn.Module):
    def forward(self, x, r):
        return x * torch.sigmoid(x) + r * 2**-12


def get_inputs():
    return [torch.randn(ROWS, COLS, dtype=torch.bfloat16), torch.randn(ROWS, COLS, dtype=torch.bfloat16)]
