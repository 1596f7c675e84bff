ROWS, COLS, EXTRA = 24, 64, 16


class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[0], x.shape[1] + EXTRA, device=x.device)
        out[:, : x.shape[1]] = x.clone() * 2.0
        return out


def get_inputs():
    return [torch.randn(ROWS, COLS)]
