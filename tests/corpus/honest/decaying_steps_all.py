# task: decaying_steps
# expect: credited
# Each program takes all steps of some channels.
@triton.jit
def scan(x_ptr, gate_ptr, bias_ptr, out_ptr, length, channels, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < channels
    bias = tl.load(bias_ptr + at, there, 0.0)
    row = tl.program_id(0) * length * channels
    state = tl.zeros([BLOCK], tl.float32)
    for step in range(0, length):
        place = row + step * channels + at
        keep = tl.sigmoid(tl.load(gate_ptr + place, there, 0.0) + bias)
        state = keep * state + tl.load(x_ptr + place, there, 0.0)
        tl.store(out_ptr + place, state, there)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(channels))

    def forward(self, x, gate):
        batch, length, channels = x.shape
        out = torch.empty_like(x)
        scan[batch, triton.cdiv(channels, 32)](x, gate, self.bias, out, length, channels, BLOCK=32, num_warps=1)
        return out
