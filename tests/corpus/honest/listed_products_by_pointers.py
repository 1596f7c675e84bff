# task: listed_products
# expect: credited
# Programs take operands and results of one product after another from tables of addresses.
@triton.jit
def kernel(pa, pb, pc, groups, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):
    tile, last = tl.program_id(0), 0
    nt = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * nt
    for g in range(groups):
        while tile >= last and tile < last + tiles:
            a = tl.load(pa + g).to(tl.pointer_type(tl.float16))
            b = tl.load(pb + g).to(tl.pointer_type(tl.float16))
            c = tl.load(pc + g).to(tl.pointer_type(tl.float16))
            rm = (tile - last) // nt * BM + tl.arange(0, BM)
            rn = (tile - last) % nt * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                rk = k + tl.arange(0, BK)
                x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
                y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
                acc += tl.dot(x, y)
            inside = (rm[:, None] < M) & (rn[None, :] < N)
            tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=inside)
            tile += PROGRAMS
        last += tiles


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        count, m, k = a.shape
        n = b.shape[2]
        c = a.new_empty(count, m, n)
        tables = [torch.tensor([one.data_ptr() for one in x.unbind(0)], device=a.device) for x in (a, b, c)]
        kernel[(64,)](*tables, count, m, n, k, BM=64, BN=64, BK=32, PROGRAMS=64)
        return c
