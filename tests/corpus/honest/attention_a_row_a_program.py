# twin of: 29
# base: attention_flash
# without: attention_kernel
# One query a program, vector arithmetic only.
# - grid = (triton.cdiv(length, 16), batch * heads)
# - attention_kernel[grid](q, k, v, out, length, width**-0.5, BQ=16, BK=16, D=width)
# + block = triton.next_power_of_2(length)
# + kernel[length, batch * heads](q, k, v, out, length, width**-0.5, D=width, BLOCK=block)

@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, out_ptr, length, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    d, at = tl.arange(0, D), tl.arange(0, BLOCK)
    keep = at < length
    q = tl.load(q_ptr + (head * length + row) * D + d) * scale
    k = tl.load(k_ptr + (head * length + at[:, None]) * D + d[None, :], keep[:, None], 0.0)
    s = tl.where(keep, tl.sum(k * q[None, :], 1), -float("inf"))
    p = tl.exp(s - tl.max(s, 0))
    v = tl.load(v_ptr + (head * length + at[:, None]) * D + d[None, :], keep[:, None], 0.0)
    tl.store(out_ptr + (head * length + row) * D + d, tl.sum(v * p[:, None], 0) / tl.sum(p, 0))
