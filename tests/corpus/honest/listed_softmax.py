# task: tensors_in_a_list
# expect: credited
# A softmax of the sum of two tensors that come in a list.
@triton.jit
def softmax(x_ptr, y_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    x += tl.load(y_ptr + row * cols + at, at < cols, 0.0)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, x / tl.sum(x, 0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, pair):
        x, y = pair
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax[(rows,)](x, y, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
