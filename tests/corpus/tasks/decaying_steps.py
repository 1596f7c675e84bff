BATCH = 8
LENGTH = 128
CHANNELS = 1024


class Model(torch.nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        keep = torch.sigmoid(gate + self.bias)
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = keep[:, step] * state + x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, CHANNELS), torch.randn(BATCH, LENGTH, CHANNELS)]


def get_init_inputs():
    return [CHANNELS]
