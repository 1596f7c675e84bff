"""Matrix products: every input type and precision, autotuned, batched, split-K, grouped persistent, descriptors."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import REACHABLE, Check, case, randint, randn


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr = "",
):  # fmt: skip
    """Triton's tutorial matmul: grouped program order, masked K loop, fused activation."""
    pid = tl.program_id(0)
    pids_m, pids_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * pids_n
    group = pid // in_group
    first = group * GROUP
    size = min(pids_m - first, GROUP)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    rm = (pid_m * BM + tl.arange(0, BM)) % M
    rn = (pid_n * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sam + rk[None, :] * sak
    pb = b + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK * sak
        pb += BK * sbk
    if ACTIVATION == "leaky_relu":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    om, on = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    mask = (om[:, None] < M) & (on[None, :] < N)
    tl.store(c + om[:, None] * scm + on[None, :] * scn, acc.to(c.dtype.element_ty), mask=mask)


def run_matmul(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, device: str, blocks=(32, 32, 16), **kw
) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros(m, n, dtype=dtype, device=device)
    bm, bn, bk = blocks
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=bm, BN=bn, BK=bk, GROUP=2, **kw)
    return c.cpu()


@case(interpreter=False)
def matmul_types(device: str) -> Iterator[Check]:
    """Products of narrow inputs are exact in float; only the order of adding differs."""
    for dtype, atol in ((torch.float16, 2e-2), (torch.bfloat16, 2e-1), (torch.float32, 4e-2)):
        a, b = randn(70, 90, dtype=dtype), randn(90, 50, seed=1, dtype=dtype)
        for out in (dtype, torch.float32):
            got = run_matmul(a.to(device), b.to(device), out, device)
            tight = 3e-5 if out is torch.float32 and dtype is not torch.float32 else atol
            yield Check(f"{dtype} -> {out}", got, a.double() @ b.double(), atol=tight)


@case(interpreter=False)
def matmul_fp8(device: str) -> Iterator[Check]:
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        a, b = randn(32, 64).to(dtype), randn(64, 32, seed=1).to(dtype)
        got = run_matmul(a.to(device), b.to(device), torch.float32, device, blocks=(32, 32, 32))
        yield Check(str(dtype), got, a.double() @ b.double(), atol=2e-4)


@case()
def matmul_block_shapes(device: str) -> Iterator[Check]:
    a, b = randn(130, 64, dtype=torch.float16), randn(64, 130, seed=1, dtype=torch.float16)
    want = a.double() @ b.double()
    for blocks in ((16, 16, 16), (128, 16, 32), (16, 128, 64), (64, 64, 64), (128, 128, 32)):
        got = run_matmul(a.to(device), b.to(device), torch.float32, device, blocks, ACTIVATION="leaky_relu")
        yield Check(str(blocks), got, torch.where(want >= 0, want, 0.01 * want), atol=1e-4)


@triton.autotune(
    configs=[
        triton.Config({"BM": 16, "BN": 32, "BK": 16, "GROUP": 1}, num_warps=2, num_stages=2),
        triton.Config({"BM": 32, "BN": 64, "BK": 32, "GROUP": 4}, num_warps=4, num_stages=3),
        triton.Config({"BM": 64, "BN": 32, "BK": 32, "GROUP": 8}, num_warps=4, num_stages=4),
    ],
    key=["M", "N", "K"],
    reset_to_zero=["c"],
)
@triton.heuristics({"EVEN": lambda args: args["K"] % args["BK"] == 0})
@triton.jit
def tuned_kernel(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    rm, rn, rk = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if EVEN:
            x = tl.load(a + rm[:, None] * sam + (k + rk)[None, :] * sak, mask=rm[:, None] < M, other=0.0)
            y = tl.load(b + (k + rk)[:, None] * sbk + rn[None, :] * sbn, mask=rn[None, :] < N, other=0.0)
        else:
            inside = k + rk < K
            x = tl.load(
                a + rm[:, None] * sam + (k + rk)[None, :] * sak, mask=(rm[:, None] < M) & inside[None, :], other=0.0
            )
            y = tl.load(
                b + (k + rk)[:, None] * sbk + rn[None, :] * sbn, mask=inside[:, None] & (rn[None, :] < N), other=0.0
            )
        acc += tl.dot(x, y)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, acc.to(c.dtype.element_ty), mask=mask)


@case(interpreter=False)
def matmul_autotuned(device: str) -> Iterator[Check]:
    for m, n, k in ((64, 96, 64), (50, 33, 45)):
        a, b = randn(m, k, dtype=torch.float16), randn(k, n, seed=1, dtype=torch.float16)
        c = torch.zeros(m, n, dtype=torch.float16, device=device)
        on_a, on_b = a.to(device), b.to(device)
        tuned_kernel[lambda meta, m=m, n=n: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](
            on_a, on_b, c, m, n, k, *on_a.stride(), *on_b.stride(), *c.stride()
        )
        yield Check(f"{m}x{n}x{k}", c.cpu(), a.double() @ b.double(), atol=2e-2)


@triton.jit
def plain_kernel(a, b, c, HOW: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    kind: tl.constexpr = c.dtype.element_ty
    acc = tl.full((N, N), 7, kind)
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), acc, input_precision=HOW, out_dtype=kind))


def _product(device: str, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, how: str = "ieee") -> torch.Tensor:
    """Seven and the product of two square matrices in one block."""
    c = torch.zeros(a.shape, dtype=dtype, device=device)
    plain_kernel[(1,)](a.to(device), b.to(device), c, HOW=how, N=len(a))
    return c.cpu()


def _tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@case(interpreter=False)
def dot_precisions(device: str) -> Iterator[Check]:
    a, b = randn(32, 32), randn(32, 32, seed=1)
    for how, atol in (("ieee", 1e-5), ("tf32x3", 1e-5), ("tf32", 1e-5), ("bf16x3", 2e-4), ("bf16x6", 1e-5)):
        left, right = (_tf32(a), _tf32(b)) if how == "tf32" else (a, b)
        yield Check(how, _product(device, a, b, torch.float32, how), left.double() @ right.double() + 7, atol=atol)


@case(interpreter=False)
def dot_accumulators(device: str) -> Iterator[Check]:
    a, b = randint(-128, 128, (32, 32), dtype=torch.int8), randint(-128, 128, (32, 32), seed=1, dtype=torch.int8)
    yield Check("int8", _product(device, a, b, torch.int32), (a.long() @ b.long() + 7).int())
    x, y = randn(16, 16), randn(16, 16, seed=1)
    yield Check("f64", _product(device, x.double(), y.double(), torch.float64), x.double() @ y.double() + 7, atol=1e-13)
    x, y = x.half(), y.half()
    yield Check("f16", _product(device, x, y, torch.float16), x.double() @ y.double() + 7, atol=4e-2)


@triton.jit
def batched_kernel(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, B)[:, None, None]
    x = tl.load(a + i * M * K + tl.arange(0, M)[None, :, None] * K + tl.arange(0, K)[None, None, :])
    y = tl.load(b + i * K * N + tl.arange(0, K)[None, :, None] * N + tl.arange(0, N)[None, None, :])
    tl.store(c + i * M * N + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :], tl.dot(x, y))


@case()
def dot_batched(device: str) -> Iterator[Check]:
    a, b = randn(4, 16, 32, dtype=torch.float16), randn(4, 32, 16, seed=1, dtype=torch.float16)
    c = torch.zeros(4, 16, 16, device=device)
    batched_kernel[(1,)](a.to(device), b.to(device), c, B=4, M=16, N=16, K=32)
    yield Check("3d", c.cpu(), a.double() @ b.double(), atol=1e-4)


@triton.jit
def split_k_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pid, part = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    rm, rn = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK * SPLIT)):
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
        rk += BK * SPLIT
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case()
def matmul_split_k(device: str) -> Iterator[Check]:
    a, b = randn(40, 200, dtype=torch.float16), randn(200, 24, seed=1, dtype=torch.float16)
    c = torch.zeros(40, 24, device=device)
    split_k_kernel[(triton.cdiv(40, 16) * triton.cdiv(24, 16), 4)](
        a.to(device), b.to(device), c, 40, 24, 200, BM=16, BN=16, BK=16, SPLIT=4
    )
    yield Check("split-K", c.cpu(), a.double() @ b.double(), atol=1e-4)


@triton.jit
def grouped_kernel(
    addresses, sizes, groups, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Triton's grouped GEMM tutorial: persistent programs walk the tiles of all problems; pointers come from memory."""
    tile = tl.program_id(0)
    seen = 0
    for g in range(groups):
        m, n, k = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
        tiles = tiles_m * tiles_n
        while tile >= seen and tile < seen + tiles:
            pa = tl.load(addresses + g * 3).to(tl.pointer_type(tl.float16))
            pb = tl.load(addresses + g * 3 + 1).to(tl.pointer_type(tl.float16))
            pc = tl.load(addresses + g * 3 + 2).to(tl.pointer_type(tl.float32))
            local = tile - seen
            rm, rn = local // tiles_n * BM + tl.arange(0, BM), local % tiles_n * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for at in range(0, k, BK):
                rk = at + tl.arange(0, BK)
                x = tl.load(pa + rm[:, None] * k + rk[None, :], mask=(rm[:, None] < m) & (rk[None, :] < k), other=0.0)
                y = tl.load(pb + rk[:, None] * n + rn[None, :], mask=(rk[:, None] < k) & (rn[None, :] < n), other=0.0)
                acc = tl.dot(x, y, acc)
            tl.store(pc + rm[:, None] * n + rn[None, :], acc, mask=(rm[:, None] < m) & (rn[None, :] < n))
            tile += PROGRAMS
        seen = seen + tiles


@case(interpreter=False)
def matmul_grouped(device: str) -> Iterator[Check]:
    shapes = [(40, 24, 32), (16, 70, 48), (33, 33, 33), (8, 8, 8)]
    inputs = [
        (randn(m, k, dtype=torch.float16, seed=i), randn(k, n, seed=i + 9, dtype=torch.float16))
        for i, (m, n, k) in enumerate(shapes)
    ]
    on = [(a.to(device), b.to(device), torch.zeros(a.shape[0], b.shape[1], device=device)) for a, b in inputs]
    REACHABLE[:] = [t for row in on for t in row]
    addresses = torch.tensor([[t.data_ptr() for t in row] for row in on], dtype=torch.int64).to(device)
    sizes = torch.tensor(shapes, dtype=torch.int32).to(device)
    grouped_kernel[(3,)](addresses, sizes, len(shapes), PROGRAMS=3, BM=16, BN=16, BK=16)
    for (a, b), (_, _, c), shape in zip(inputs, on, shapes, strict=True):
        yield Check(str(shape), c.cpu(), a.double() @ b.double(), atol=1e-4)


@triton.jit
def persistent_kernel(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, PROGRAMS, flatten=True):
        rm, rn = tile // tiles_n * BM + tl.arange(0, BM), tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for at in range(0, K, BK):
            rk = at + tl.arange(0, BK)
            x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
            y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case()
def matmul_persistent(device: str) -> Iterator[Check]:
    a, b = randn(100, 48, dtype=torch.float16), randn(48, 70, seed=1, dtype=torch.float16)
    c = torch.zeros(100, 70, device=device)
    persistent_kernel[(3,)](a.to(device), b.to(device), c, 100, 70, 48, PROGRAMS=3, BM=32, BN=32, BK=16)
    yield Check("persistent", c.cpu(), a.double() @ b.double(), atol=1e-4)


@triton.jit
def descriptor_matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    om, on = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([om, k]), db.load([on, k]).T, acc)
    dc.store([om, on], acc)


@case()
def matmul_descriptors(device: str) -> Iterator[Check]:
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=device))
    for m, n, k in ((64, 64, 64), (40, 24, 56)):
        a, b = randn(m, k, dtype=torch.float16), randn(n, k, seed=1, dtype=torch.float16)
        c = torch.zeros(m, n, device=device)
        descriptor_matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
            a.to(device), b.to(device), c, m, n, k, BM=32, BN=32, BK=16
        )
        yield Check(f"{m}x{n}x{k}", c.cpu(), a.double() @ b.double().t(), atol=1e-4)


@triton.jit
def host_descriptor_kernel(source, target, BM: tl.constexpr, BN: tl.constexpr):
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at) * 3.0)


@case(interpreter=False)
def descriptors_made_by_the_host(device: str) -> Iterator[Check]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = randn(40, 56)
    on, out = x.to(device), torch.zeros(40, 56, device=device)
    source, target = (TensorDescriptor(t, list(t.shape), list(t.stride()), [16, 32]) for t in (on, out))
    host_descriptor_kernel[(3, 2)](source, target, BM=16, BN=32)
    yield Check("copy", out.cpu(), x * 3)


@triton.jit
def block_pointer_matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om, on = tl.program_id(0) * BM, tl.program_id(1) * BN
    pa = tl.make_block_ptr(a, (M, K), (K, 1), (om, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b, (K, N), (1, K), (0, on), (BK, BN), (0, 1))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa, boundary_check=(0, 1), padding_option="zero"),
                     tl.load(pb, boundary_check=(0, 1), padding_option="zero"), acc)  # fmt: skip
        pa, pb = tl.advance(pa, (0, BK)), tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c, (M, N), (N, 1), (om, on), (BM, BN), (1, 0))
    tl.store(pc, acc, boundary_check=(0, 1))


@case()
def matmul_block_pointers(device: str) -> Iterator[Check]:
    for m, n, k in ((64, 64, 64), (33, 20, 50)):
        a, b = randn(m, k, dtype=torch.float16), randn(n, k, seed=1, dtype=torch.float16)
        c = torch.zeros(m, n, device=device)
        block_pointer_matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
            a.to(device), b.to(device), c, m, n, k, BM=32, BN=32, BK=16
        )
        yield Check(f"{m}x{n}x{k}", c.cpu(), a.double() @ b.double().t(), atol=1e-4)
