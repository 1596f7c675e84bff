"""Kernels of neural networks: normalisations, softmax, losses, selective scan, embeddings, optimisers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from conformance_cases import Check, case, randint, randn


@triton.jit
def softmax_kernel(x, out, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + k, mask=k < cols, other=-float("inf"))
    value = value.to(tl.float32)
    numerator = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * cols + k, (numerator / tl.sum(numerator, 0)).to(out.dtype.element_ty), mask=k < cols)


@case()
def softmax(device: str) -> Iterator[Check]:
    for dtype, atol in ((torch.float32, 1e-7), (torch.float16, 1e-3)):
        for cols in (1, 31, 100, 257):
            x = randn(5, cols, dtype=dtype) * 4
            out = torch.zeros(5, cols, dtype=dtype, device=device)
            softmax_kernel[(5,)](x.to(device), out, cols, cols, BLOCK=triton.next_power_of_2(cols))
            yield Check(f"{dtype} {cols}", out.cpu(), x.double().softmax(1), atol=atol, rtol=2e-6)


@triton.jit
def online_softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top, total = -float("inf"), 0.0
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols, other=-float("inf"))
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols)
        tl.store(out + row * cols + k, tl.exp(value - top) / total, mask=k < cols)


@case()
def softmax_online(device: str) -> Iterator[Check]:
    x = randn(4, 300) * 3
    out = torch.zeros(4, 300, device=device)
    online_softmax_kernel[(4,)](x.to(device), out, 300, BLOCK=64)
    yield Check("softmax", out.cpu(), x.double().softmax(1), rtol=5e-6, atol=1e-9)


@triton.jit
def layer_norm_kernel(x, w, b, out, mean_out, rstd_out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
        value = tl.where(k < cols, value - mean, 0.0)
        squares += value * value
    rstd = 1 / tl.sqrt(tl.sum(squares, 0) / cols + eps)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
        scaled = (value - mean) * rstd * tl.load(w + k, mask=k < cols) + tl.load(b + k, mask=k < cols)
        tl.store(out + row * cols + k, scaled.to(out.dtype.element_ty), mask=k < cols)


@triton.jit
def layer_norm_dx_kernel(
    dy, x, w, mean, rstd, dx, dw_part, db_part, lock, cols, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    """Backward with partial weight gradients under a lock per group, as in Triton's tutorial."""
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    mask = k < cols
    value = tl.load(x + row * cols + k, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(dy + row * cols + k, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(w + k, mask=mask, other=0.0)
    m, r = tl.load(mean + row), tl.load(rstd + row)
    normal = tl.where(mask, (value - m) * r, 0.0)
    weighted = tl.where(mask, scale * grad, 0.0)
    c1 = tl.sum(normal * weighted, 0) / cols
    c2 = tl.sum(weighted, 0) / cols
    tl.store(dx + row * cols + k, (weighted - (normal * c1 + c2)) * r, mask=mask)
    group = row % GROUPS
    guard, count = lock + group, lock + GROUPS + group
    part_w, part_b = grad * normal, grad
    dw_at, db_at = dw_part + group * cols + k, db_part + group * cols + k
    while tl.atomic_cas(guard, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw_at, mask=mask)
        part_b += tl.load(db_at, mask=mask)
    tl.store(dw_at, part_w, mask=mask)
    tl.store(db_at, part_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(guard, 0)


@case()
def layer_norm_forward_backward(device: str) -> Iterator[Check]:
    rows, cols, groups = 9, 77, 4
    x, dy = randn(rows, cols), randn(rows, cols, seed=1)
    w, b = randn(cols, seed=2), randn(cols, seed=3)
    y, dx = (torch.zeros(rows, cols, device=device) for _ in range(2))
    mean, rstd = (torch.zeros(rows, device=device) for _ in range(2))
    on = [t.to(device) for t in (x, w, b, dy)]
    layer_norm_kernel[(rows,)](on[0], on[1], on[2], y, mean, rstd, cols, 1e-5, BLOCK=32)
    dw, db = (torch.zeros(groups, cols, device=device) for _ in range(2))
    lock = torch.zeros(2 * groups, dtype=torch.int32, device=device)
    layer_norm_dx_kernel[(rows,)](on[3], on[0], on[1], mean, rstd, dx, dw, db, lock, cols, GROUPS=groups, BLOCK=128)
    xd, wd, bd = (t.double().requires_grad_() for t in (x, w, b))
    want = torch.nn.functional.layer_norm(xd, (cols,), wd, bd, 1e-5)
    want.backward(dy.double())
    yield Check("y", y.cpu(), want.detach(), atol=2e-5)
    yield Check("dx", dx.cpu(), xd.grad, atol=2e-5)
    yield Check("dw", dw.cpu().sum(0), wd.grad, atol=2e-5)
    yield Check("db", db.cpu().sum(0), bd.grad, atol=2e-5)


@triton.jit
def rms_norm_kernel(x, w, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + k, mask=k < cols, other=0.0)
    wide = value.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(wide * wide, 0) / cols + eps)
    scaled = (wide * rstd).to(x.dtype.element_ty) * tl.load(w + k, mask=k < cols)
    tl.store(out + row * cols + k, scaled, mask=k < cols)


@case(interpreter=False)
def rms_norm(device: str) -> Iterator[Check]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, w = randn(6, 200, dtype=dtype), randn(200, seed=1, dtype=dtype)
        out = torch.zeros(6, 200, dtype=dtype, device=device)
        rms_norm_kernel[(6,)](x.to(device), w.to(device), out, 200, 1e-6, BLOCK=256)
        normal = x.double() * (x.double().square().mean(1, keepdim=True) + 1e-6).rsqrt()
        want = normal * w.double()
        ulp = {torch.float32: 2e-7, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
        yield Check(str(dtype), out.cpu(), want, rtol=1.6 * ulp, atol=ulp)


@triton.jit
def cross_entropy_kernel(logits, labels, loss, grad, cols, ignore, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    base = logits + row * cols
    if label == ignore:
        for at in range(0, cols, BLOCK):
            k = at + tl.arange(0, BLOCK)
            tl.store(grad + row * cols + k, 0.0, mask=k < cols)
        return
    top, total, plain = -float("inf"), 0.0, 0.0
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(base + k, mask=k < cols, other=-float("inf")).to(tl.float32)
        plain += tl.sum(tl.where(k < cols, value, 0.0), 0)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    lse = top + tl.log(total)
    hit = tl.load(base + label).to(tl.float32)
    tl.store(loss + row, (1 - smoothing) * (lse - hit) + smoothing * (lse - plain / cols))
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(base + k, mask=k < cols, other=-float("inf")).to(tl.float32)
        p = tl.exp(value - lse) - smoothing / cols - tl.where(k == label, 1.0 - smoothing, 0.0)
        tl.store(grad + row * cols + k, p, mask=k < cols)


@case()
def cross_entropy(device: str) -> Iterator[Check]:
    x, labels = randn(8, 130) * 3, randint(0, 130, (8,), dtype=torch.int64)
    labels[3] = -100
    loss, grad = torch.zeros(8, device=device), torch.zeros(8, 130, device=device)
    cross_entropy_kernel[(8,)](x.to(device), labels.to(device), loss, grad, 130, -100, 0.1, BLOCK=64)
    xd = x.double().requires_grad_()
    want = torch.nn.functional.cross_entropy(xd, labels, reduction="none", label_smoothing=0.1)
    want.sum().backward()
    yield Check("loss", loss.cpu(), want.detach(), atol=1e-5)
    yield Check("grad", grad.cpu(), xd.grad, atol=1e-6)


@triton.jit
def selective_scan_kernel(
    u, delta, a, b, c, d, out, length, channels, STATE: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Mamba's recurrence h = exp(Δ·A)·h + Δ·B·u, y = C·h + D·u, one step after another."""
    batch, block = tl.program_id(0), tl.program_id(1)
    rd, rn = block * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, STATE)
    inside = rd < channels
    decay = tl.load(a + rd[:, None] * STATE + rn[None, :], mask=inside[:, None], other=0.0)
    skip = tl.load(d + rd, mask=inside, other=0.0)
    h = tl.zeros((BLOCK_D, STATE), tl.float32)
    for t in range(length):
        at = (batch * length + t) * channels + rd
        step = tl.load(delta + at, mask=inside, other=0.0)
        step = tl.where(step > 20.0, step, tl.log(1 + tl.exp(step)))
        value = tl.load(u + at, mask=inside, other=0.0)
        into = tl.load(b + (batch * length + t) * STATE + rn)
        outof = tl.load(c + (batch * length + t) * STATE + rn)
        h = tl.exp(step[:, None] * decay) * h + (step * value)[:, None] * into[None, :]
        tl.store(out + at, tl.sum(h * outof[None, :], 1) + skip * value, mask=inside)


@case()
def mamba_selective_scan(device: str) -> Iterator[Check]:
    batch, length, channels, state = 2, 12, 20, 8
    u, delta = randn(batch, length, channels), randn(batch, length, channels, seed=1)
    a, d = -randn(channels, state, seed=2).abs(), randn(channels, seed=3)
    b, c = randn(batch, length, state, seed=4), randn(batch, length, state, seed=5)
    out = torch.zeros(batch, length, channels, device=device)
    selective_scan_kernel[(batch, 2)](
        *(t.to(device) for t in (u, delta, a, b, c, d)), out, length, channels, STATE=state, BLOCK_D=16
    )
    h, want = torch.zeros(batch, channels, state, dtype=torch.float64), []
    step = torch.nn.functional.softplus(delta.double())
    for t in range(length):
        h = (step[:, t, :, None] * a.double()).exp() * h + (step[:, t] * u[:, t])[..., None] * b[:, t, None, :].double()
        want.append((h * c[:, t, None, :]).sum(-1) + d * u[:, t])
    yield Check("y", out.cpu(), torch.stack(want, 1), atol=1e-5)


@triton.jit
def first_order(a_left, b_left, a_right, b_right):
    return a_left * a_right, b_left * a_right + b_right


@triton.jit
def chunked_scan_kernel(gates, x, out, length, channels, CHUNK: tl.constexpr, BLOCK_D: tl.constexpr):
    """The same recurrence in chunks: an associative scan inside, a carried state between."""
    rd, rt = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, CHUNK)
    carry = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, length, CHUNK):
        at = (start + rt)[:, None] * channels + rd[None, :]
        mask = ((start + rt) < length)[:, None] & (rd < channels)[None, :]
        gate = tl.load(gates + at, mask=mask, other=1.0)
        value = tl.load(x + at, mask=mask, other=0.0)
        product, h = tl.associative_scan((gate, value), 0, first_order)
        h = h + product * carry[None, :]
        tl.store(out + at, h, mask=mask)
        carry = tl.sum(tl.where((rt == CHUNK - 1)[:, None], h, 0.0), 0)


@case()
def mamba_chunked_scan(device: str) -> Iterator[Check]:
    gates, x = torch.sigmoid(randn(50, 24)), randn(50, 24, seed=1)
    out = torch.zeros(50, 24, device=device)
    chunked_scan_kernel[(2,)](gates.to(device), x.to(device), out, 50, 24, CHUNK=16, BLOCK_D=16)
    h, want = torch.zeros(24, dtype=torch.float64), []
    for t in range(50):
        h = gates[t].double() * h + x[t].double()
        want.append(h)
    yield Check("h", out.cpu(), torch.stack(want), atol=1e-5)


@triton.jit
def gated_kernel(x, out, cols, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = k < cols
    gate = tl.load(x + row * 2 * cols + k, mask=mask).to(tl.float32)
    up = tl.load(x + row * 2 * cols + cols + k, mask=mask).to(tl.float32)
    if HOW == "silu":
        value = gate * tl.sigmoid(gate)
    elif HOW == "gelu":
        value = 0.5 * gate * (1 + tl.erf(gate * 0.70710678118654752))
    else:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        value = 0.5 * gate * (1 + libdevice.tanh(inner))
    tl.store(out + row * cols + k, (value * up).to(out.dtype.element_ty), mask=mask)


@case(interpreter=False)
def gated_activations(device: str) -> Iterator[Check]:
    x = randn(4, 200)
    gate, up = x.double()[:, :100], x.double()[:, 100:]
    f = torch.nn.functional
    for how, value in (("silu", f.silu(gate)), ("gelu", f.gelu(gate)), ("tanh", f.gelu(gate, approximate="tanh"))):
        out = torch.zeros(4, 100, device=device)
        gated_kernel[(4, 2)](x.to(device), out, 100, HOW=how, BLOCK=64)
        yield Check(how, out.cpu(), value * up, atol=1e-6)


@triton.jit
def rotary_kernel(q, cos, sin, out, heads, HALF: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, HALF)
    base = (token * heads + head) * 2 * HALF
    c, s = tl.load(cos + token * HALF + k), tl.load(sin + token * HALF + k)
    a, b = tl.load(q + base + k), tl.load(q + base + HALF + k)
    tl.store(out + base + k, a * c - b * s)
    tl.store(out + base + HALF + k, b * c + a * s)


@case()
def rotary_embedding(device: str) -> Iterator[Check]:
    q, angle = randn(7, 3, 32), randn(7, 16, seed=1)
    out = torch.zeros(7, 3, 32, device=device)
    rotary_kernel[(7, 3)](q.to(device), angle.cos().to(device), angle.sin().to(device), out, 3, HALF=16)
    a, b = q[..., :16].double(), q[..., 16:].double()
    c, s = angle.cos().double()[:, None], angle.sin().double()[:, None]
    yield Check("rotated", out.cpu(), torch.cat([a * c - b * s, b * c + a * s], -1), atol=1e-6)


@triton.jit
def embedding_backward_kernel(grad, index, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    at = tl.load(index + row)
    tl.atomic_add(out + at * cols + k, tl.load(grad + row * cols + k, mask=k < cols), mask=k < cols)


@case()
def embedding_backward(device: str) -> Iterator[Check]:
    grad, index = randn(30, 20), randint(0, 6, (30,))
    out = torch.zeros(6, 20, device=device)
    embedding_backward_kernel[(30,)](grad.to(device), index.to(device), out, 20, BLOCK=32)
    yield Check(
        "grad", out.cpu(), torch.zeros(6, 20, dtype=torch.float64).index_add_(0, index, grad.double()), atol=1e-5
    )


@triton.jit
def adam_kernel(p, g, m, v, n, lr, beta1, beta2, eps, step, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < n
    grad = tl.load(g + k, mask=mask)
    mean = beta1 * tl.load(m + k, mask=mask) + (1 - beta1) * grad
    var = beta2 * tl.load(v + k, mask=mask) + (1 - beta2) * grad * grad
    tl.store(m + k, mean, mask=mask)
    tl.store(v + k, var, mask=mask)
    power1 = tl.exp(step * tl.log(beta1))
    power2 = tl.exp(step * tl.log(beta2))
    update = mean / (1 - power1) / (tl.sqrt(var / (1 - power2)) + eps)
    tl.store(p + k, tl.load(p + k, mask=mask) - lr * update, mask=mask)


@case()
def adam_in_place(device: str) -> Iterator[Check]:
    p, g, m, v = randn(100), randn(100, seed=1), randn(100, seed=2), randn(100, seed=3).abs()
    on = [t.clone().to(device) for t in (p, g, m, v)]
    adam_kernel[(2,)](*on, 100, 0.01, 0.9, 0.999, 1e-8, 3.0, BLOCK=64)
    pd, gd = p.double(), g.double()
    md, vd = 0.9 * m.double() + 0.1 * gd, 0.999 * v.double() + 0.001 * gd * gd
    want = pd - 0.01 * (md / (1 - 0.9**3)) / ((vd / (1 - 0.999**3)).sqrt() + 1e-8)
    yield Check("p", on[0].cpu(), want, atol=2e-5)
    yield Check("m", on[2].cpu(), md, atol=1e-6)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, k) > p
    value = tl.load(x + k, mask=k < n)
    tl.store(out + k, tl.where(keep, value / (1 - p), 0.0), mask=k < n)


@case()
def dropout(device: str) -> Iterator[Check]:
    x = randn(1000)
    out, again = torch.zeros(1000, device=device), torch.zeros(1000, device=device)
    dropout_kernel[(8,)](x.to(device), out, 1000, 0.3, 11, BLOCK=128)
    dropout_kernel[(4,)](x.to(device), again, 1000, 0.3, 11, BLOCK=256)
    kept = out.cpu() != 0
    yield Check("scaled", out.cpu()[kept], x.double()[kept] / 0.7, rtol=1e-6)
    yield Check("same whatever the blocks", again.cpu(), out.cpu())
    yield Check("about 70% kept", kept.double().mean()[None], torch.tensor([0.7]), atol=0.05)


@triton.jit
def convolution_kernel(x, w, out, length, channels_in, K: tl.constexpr, BLOCK: tl.constexpr):
    """A direct 1-d convolution, one output channel a program."""
    channel = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for c in range(channels_in):
        for tap in tl.static_range(K):
            at = k + tap - K // 2
            value = tl.load(x + c * length + at, mask=(at >= 0) & (at < length), other=0.0)
            total += value * tl.load(w + (channel * channels_in + c) * K + tap)
    tl.store(out + channel * length + k, total, mask=k < length)


@case()
def convolution_1d(device: str) -> Iterator[Check]:
    x, w = randn(3, 70), randn(4, 3, 5, seed=1)
    out = torch.zeros(4, 70, device=device)
    convolution_kernel[(4, 2)](x.to(device), w.to(device), out, 70, 3, K=5, BLOCK=64)
    want = torch.nn.functional.conv1d(x.double()[None], w.double(), padding=2)[0]
    yield Check("conv1d", out.cpu(), want, atol=1e-5)


@triton.jit
def quantize_kernel(x, scales, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + k, mask=k < cols, other=0.0)
    scale = tl.max(tl.abs(value), 0) / 127.0
    tl.store(scales + row, scale)
    tl.store(out + row * cols + k, libdevice.rint(value / scale).to(tl.int8), mask=k < cols)


@triton.jit
def unpack_kernel(packed, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    byte = tl.load(packed + k, mask=k < n, other=0)
    low, high = (byte & 0xF).to(tl.int8) - 8, ((byte >> 4) & 0xF).to(tl.int8) - 8
    tl.store(
        out + tl.arange(0, 2 * BLOCK), tl.interleave(low, high).to(tl.float16), mask=tl.arange(0, 2 * BLOCK) < 2 * n
    )


@case(interpreter=False)
def quantization(device: str) -> Iterator[Check]:
    x = randn(4, 100)
    scales, out = torch.zeros(4, device=device), torch.zeros(4, 100, dtype=torch.int8, device=device)
    quantize_kernel[(4,)](x.to(device), scales, out, 100, BLOCK=128)
    scale = x.abs().amax(1) / 127
    yield Check("int8", out.cpu(), (x / scale[:, None]).round().to(torch.int8))
    packed = randint(0, 256, (60,), dtype=torch.uint8)
    wide = torch.zeros(120, dtype=torch.float16, device=device)
    unpack_kernel[(1,)](packed.to(device), wide, 60, BLOCK=64)
    want = torch.stack([(packed & 15).half() - 8, (packed >> 4).half() - 8], 1).flatten()
    yield Check("int4", wide.cpu(), want)
