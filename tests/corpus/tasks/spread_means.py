ROWS, COLS = 16384, 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(-1, keepdim=True).expand_as(x).contiguous()


def get_inputs():
    return [torch.randn(ROWS, COLS)]
