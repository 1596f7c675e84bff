# base: sizes_product
# task: long_logits
# A product, and a second kernel that adds up exponentials along its rows.
@triton.jit
def row_sums(y_ptr, out_ptr, N, depth, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, depth, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row * N + cols, cols < N, -float("inf"))
        new = tl.maximum(top, y)
        total = total * tl.exp(tl.where(top == new, 0.0, top - new)) + tl.exp(tl.where(y == new, 0.0, y - new))
        top = new
    most = tl.max(top, 0)
    tl.store(out_ptr + row, most + tl.log(tl.sum(total * tl.exp(top - most), 0)))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        y = torch.empty(M, N, device=a.device, dtype=a.dtype)
        product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, y, M, N, K, K, BM=32, BN=32, BK=32)
        return self.rows(y)

    def rows(self, y):
        out = torch.empty(y.shape[0], device=y.device, dtype=y.dtype)
        row_sums[(y.shape[0],)](y, out, y.shape[1], y.shape[1], BLOCK=1024)
        return out
