# task: sums_in_a_dict
# Returns a dict, its entries in another order than the reference's.
@triton.jit
def k(x, s, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, B)
    v = tl.load(x + r * n + at, at < n, 0.0)
    tl.store(s + r, tl.sum(v))
    tl.store(o + r * n + at, 2 * v, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        s = torch.empty(x.shape[0], device=x.device)
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, s, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return {"double": o, "sum": s}
