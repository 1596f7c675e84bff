ROWS, LENGTH = 256, 16384


class Model(torch.nn.Module):
    def forward(self, x):
        return (x ^ 85).unfold(1, 8, 4).contiguous()


def get_inputs():
    return [torch.randint(0, 256, (ROWS, LENGTH), dtype=torch.uint8)]
