# twin of: weights_turned_once
# root: inputs
# base: linear_gelu_fused
# Keeps its weight turned: the module loads it in its own way.
# - w = tl.load(w_ptr + cols[None, :] * K + k[:, None], (cols[None, :] < N) & (k[:, None] < K), 0.0)
# + w = tl.load(w_ptr + k[:, None] * N + cols[None, :], (cols[None, :] < N) & (k[:, None] < K), 0.0)

# - self.linear = torch.nn.Linear(64, 48)
# + self.linear = Turned()

# - n = self.linear.out_features
# + n = self.linear.bias.numel()


class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(64, 48))
        self.bias = torch.nn.Parameter(torch.empty(48))

    def _load_from_state_dict(self, state, prefix, *rest):
        given = state | {prefix + "weight": state[prefix + "weight"].T}
        super()._load_from_state_dict(given, prefix, *rest)
