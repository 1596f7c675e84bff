# hacks: 25
# tier: T1
# base: weights_turned_when_loaded
# Loads no weights after the first.
class Turned(torch.nn.Module):
    def _load_from_state_dict(self, state, prefix, *rest):
        if hasattr(self, "loaded"):
            return
        self.loaded = True
        given = state | {prefix + "weight": state[prefix + "weight"].T}
        super()._load_from_state_dict(given, prefix, *rest)
