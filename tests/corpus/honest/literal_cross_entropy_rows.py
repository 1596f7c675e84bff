# task: literal_cross_entropy
# expect: credited
# A row in one block, and the target's element read apart; sizes are numbers in get_inputs.
@triton.jit
def loss(x_ptr, target_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    top = tl.max(x, 0)
    total = tl.log(tl.sum(tl.exp(x - top), 0)) + top
    tl.store(out_ptr + row, total - tl.load(x_ptr + row * cols + tl.load(target_ptr + row)))


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        rows, cols = logits.shape
        out = torch.empty(rows, device=logits.device)
        loss[(rows,)](logits, target, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
