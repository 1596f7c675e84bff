"""Pooling over one and two dimensions."""

from __future__ import annotations

POOL = """
@triton.jit
def pool_kernel(
    x_ptr, out_ptr, height, width, out_height, out_width, stride_h, stride_w, pad_h, pad_w,
    HIGH: tl.constexpr, WIDE: tl.constexpr, DILATION: tl.constexpr, BLOCK: tl.constexpr,
):
    plane, row = tl.program_id(2).to(tl.int64), tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.full([BLOCK], NEUTRAL, tl.float32)
    for down in range(HIGH):
        r = row * stride_h - pad_h + down * DILATION
        for right in tl.static_range(WIDE):
            c = column * stride_w - pad_w + right * DILATION
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            x = tl.load(x_ptr + (plane * height + r) * width + c, mask=inside, other=NEUTRAL)
            value = STEP
    place = (plane * out_height + row) * out_width + column
    tl.store(out_ptr + place, RESULT, mask=column < out_width)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride=DEFAULT, padding=0, dilation=1, return_indices=False):
        super().__init__()
        self.kernel, self.padding, self.dilation = kernel_size, padding, dilation
        self.stride = kernel_size if stride is None else stride

    def forward(self, x):
        x = x.contiguous()
        flat = DIMENSIONS == 1
        height, width = (1, x.shape[-1]) if flat else x.shape[-2:]
        reach = self.dilation * (self.kernel - 1) + 1
        out_height = 1 if flat else (height + 2 * self.padding - reach) // self.stride + 1
        out_width = (width + 2 * self.padding - reach) // self.stride + 1
        shape = (*x.shape[:2], out_width) if flat else (*x.shape[:2], out_height, out_width)
        out = torch.empty(shape, device=x.device, dtype=x.dtype)
        planes = x.shape[0] * x.shape[1]
        pool_kernel[(triton.cdiv(out_width, 512), out_height, planes)](
            x, out, height, width, out_height, out_width, 1 if flat else self.stride, self.stride,
            0 if flat else self.padding, self.padding, HIGH=1 if flat else self.kernel, WIDE=self.kernel,
            DILATION=self.dilation, BLOCK=512,
        )
        return out
"""


def pool(dimensions: int, largest: bool, default: str) -> str:
    """The largest or the mean of windows."""
    neutral, step, result = ('-float("inf")', "tl.maximum(value, x)", "value")
    if not largest:
        neutral, step, result = "0.0", "value + x", "value / (HIGH * WIDE)"
    text = POOL.replace("NEUTRAL", neutral).replace("STEP", step).replace("RESULT", result)
    return text.replace("DIMENSIONS", str(dimensions)).replace("DEFAULT", default)


ANSWERS = {
    "level1/41": pool(1, True, "None"),
    "level1/42": pool(2, True, "None"),
    "level1/44": pool(1, False, "1"),
    "level1/45": pool(2, False, "None"),
}
