ROWS, COLS = 8192, 4096


class Model(torch.nn.Module):
    def forward(self, bits):
        for _ in range(24):
            bits = bits ^ (bits << 13)
            bits = bits ^ (bits >> 17)
            bits = bits ^ (bits << 5)
        return bits


def get_inputs():
    return [torch.randint(0, 1 << 30, (ROWS, COLS), dtype=torch.int32)]
