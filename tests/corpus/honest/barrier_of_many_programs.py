# task: over_the_sum
# 128 programs wait for one another before each divides by the sum of all.
@triton.jit
def k(x, part, count, o, n, P: tl.constexpr, PP: tl.constexpr, B: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * B + tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(part + pid, tl.sum(tl.abs(v)))
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acq_rel") < P:
        pass
    ps = tl.load(part + tl.arange(0, PP), tl.arange(0, PP) < P, 0.0, cache_modifier=".cg")
    tl.store(o + at, v / tl.sum(ps))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        P = x.numel() // 1024
        part = torch.empty(P, device=x.device)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        k[(P,)](x, part, count, o, x.numel(), P=P, PP=triton.next_power_of_2(P), B=1024)
        return o
