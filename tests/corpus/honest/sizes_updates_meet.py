# task: whole_sum
# root: sizes
# expect: credited
# Every program adds its sum to one number.
@triton.jit
def add_up(x_ptr, out_ptr, n, places, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, at < n, 0.0), 0)
    tl.atomic_add(out_ptr + tl.program_id(0) % places, part)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.numel()
        out = torch.zeros(1024, device=x.device)
        places = 1
        add_up[(triton.cdiv(n, 256),)](x, out, n, places, BLOCK=256)
        return out[:1]
