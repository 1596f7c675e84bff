# task: routes
# expect: credited
# Softmax and the eight largest of each row in one kernel; of equal ones the first.
@triton.jit
def route(x_ptr, weights_ptr, places_ptr, experts, CHOSEN: tl.constexpr, BLOCK: tl.constexpr):
    row, at, slots = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, CHOSEN)
    x = tl.load(x_ptr + row * experts + at, at < experts, -float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    p = p / tl.sum(p, 0)
    weights = tl.zeros((CHOSEN,), tl.float32)
    places = tl.zeros((CHOSEN,), tl.int64)
    for slot in tl.static_range(CHOSEN):
        best = tl.max(p, 0)
        where = tl.argmax(p, 0)
        weights = tl.where(slots == slot, best, weights)
        places = tl.where(slots == slot, where.to(tl.int64), places)
        p = tl.where(at == where, -1.0, p)
    tl.store(weights_ptr + row * CHOSEN + slots, weights / tl.sum(weights, 0))
    tl.store(places_ptr + row * CHOSEN + slots, places)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        tokens, experts = x.shape
        weights = torch.empty(tokens, 8, device=x.device)
        places = torch.empty(tokens, 8, dtype=torch.int64, device=x.device)
        block = triton.next_power_of_2(experts)
        route[(tokens,)](x, weights, places, experts, CHOSEN=8, BLOCK=block, num_warps=1)
        return weights, places
