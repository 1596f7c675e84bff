"""Loops and branches that depend on data, atomics and locks, random numbers, nested functions."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randint, randn


@triton.jit
def segments_kernel(x, starts, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    begin, end = tl.load(starts + pid), tl.load(starts + pid + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(begin, end, BLOCK):
        k = at + tl.arange(0, BLOCK)
        total += tl.load(x + k, mask=k < end, other=0.0)
    tl.store(out + pid, tl.sum(total, 0))


@case()
def loop_bounds_from_data(device: str) -> Iterator[Check]:
    starts = torch.tensor([0, 0, 5, 70, 71, 200, 333], dtype=torch.int32)
    x = randn(333)
    out = torch.zeros(6, device=device)
    segments_kernel[(6,)](x.to(device), starts.to(device), out, BLOCK=32)
    want = torch.stack([x[a:b].double().sum() for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)])
    yield Check("sums", out.cpu(), want, atol=1e-5)


@triton.jit
def collatz_kernel(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    value, steps = tl.load(x + pid), 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out + pid, steps)


@case()
def while_on_scalars(device: str) -> Iterator[Check]:
    x = torch.arange(1, 30, dtype=torch.int32)
    out = torch.zeros(29, dtype=torch.int32, device=device)
    collatz_kernel[(29,)](x.to(device), out, 29, BLOCK=1)
    want = []
    for value in x.tolist():
        steps = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps += 1
        want.append(steps)
    yield Check("steps", out.cpu(), torch.tensor(want, dtype=torch.int32))


@triton.jit
def newton_kernel(x, out, rounds, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    value = tl.load(x + k)
    guess = tl.full((BLOCK,), 1.0, tl.float32)
    error = tl.max(tl.abs(guess * guess - value), 0)
    count = 0
    while (error > 1e-4) & (count < 50):
        guess = 0.5 * (guess + value / guess)
        error = tl.max(tl.abs(guess * guess - value), 0)
        count += 1
    tl.store(out + k, guess)
    tl.store(rounds, count)


@case()
def while_on_blocks(device: str) -> Iterator[Check]:
    x = randn(64).abs() + 0.1
    out, rounds = torch.zeros(64, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    newton_kernel[(1,)](x.to(device), out, rounds, BLOCK=64)
    yield Check("roots", out.cpu(), x.double().sqrt(), atol=1e-4)
    yield Check("converged", (rounds.cpu() < 20).int(), torch.ones(1, dtype=torch.int32))


@triton.jit
def swap_kernel(x, y, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a, b = tl.load(x + k), tl.load(y + k)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        total = total * 0.5 + a
        a, b = b, a + 1
        if i % 3 == 2:
            total = total - b
    tl.store(out + k, total)
    tl.store(out + BLOCK + k, a)


@case()
def loop_carried_blocks_swap(device: str) -> Iterator[Check]:
    x, y = randn(32), randn(32, seed=1)
    for n in (0, 1, 2, 3, 7):
        out = torch.zeros(64, device=device)
        swap_kernel[(1,)](x.to(device), y.to(device), out, n, BLOCK=32)
        a, b, total = x.double(), y.double(), torch.zeros(32, dtype=torch.float64)
        for i in range(n):
            total = total * 0.5 + a
            a, b = b, a + 1
            if i % 3 == 2:
                total = total - b
        yield Check(f"n={n}", out.cpu(), torch.cat([total, a]), atol=1e-5)


@triton.jit
def early_return_kernel(x, out, limit, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= limit:
        return
    k = pid * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + k, mask=k < n)
    if tl.sum(value, 0) < 0:
        tl.store(out + k, -value, mask=k < n)
        return
    tl.store(out + k, value, mask=k < n)


@case()
def early_return(device: str) -> Iterator[Check]:
    x = randn(300)
    out = torch.zeros(300, device=device)
    early_return_kernel[(10,)](x.to(device), out, 7, 300, BLOCK=32)
    want = torch.zeros(300)
    for pid in range(7):
        part = x[pid * 32 : (pid + 1) * 32]
        want[pid * 32 : (pid + 1) * 32] = -part if part.sum() < 0 else part
    yield Check("out", out.cpu(), want)


@triton.jit
def nested_loops_kernel(x, out, rows, cols, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    count = 0
    for r in range(rows):
        pointer = x + r * cols + tl.arange(0, BLOCK)
        part = tl.zeros((BLOCK,), tl.float32)
        for c in range(0, cols, BLOCK):
            part += tl.load(pointer, mask=tl.arange(0, BLOCK) < cols - c, other=0.0)
            pointer += BLOCK
            count += 1
        total += part * (r + 1)
    tl.store(out + tl.arange(0, BLOCK), total)
    tl.store(out + BLOCK, count.to(tl.float32))


@case()
def nested_loops_with_moving_pointers(device: str) -> Iterator[Check]:
    x = randn(5, 70)
    out = torch.zeros(17, device=device)
    nested_loops_kernel[(1,)](x.to(device), out, 5, 70, BLOCK=16)
    padded = torch.nn.functional.pad(x.double(), (0, 10)).view(5, 5, 16)
    want = (padded.sum(1) * torch.arange(1, 6)[:, None]).sum(0)
    yield Check("total", out.cpu(), torch.cat([want, torch.tensor([25.0], dtype=torch.float64)]), atol=1e-4)


@triton.jit
def atomics_kernel(x, index, out, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < n
    at, value = tl.load(index + k, mask=mask, other=0), tl.load(x + k, mask=mask)
    if HOW == "add":
        tl.atomic_add(out + at, value, mask=mask)
    elif HOW == "max":
        tl.atomic_max(out + at, value, mask=mask)
    elif HOW == "min":
        tl.atomic_min(out + at, value, mask=mask)
    elif HOW == "and":
        tl.atomic_and(out + at, value, mask=mask)
    elif HOW == "or":
        tl.atomic_or(out + at, value, mask=mask)
    else:
        tl.atomic_xor(out + at, value, mask=mask)


@case()
def atomics(device: str) -> Iterator[Check]:
    n = 300
    index = randint(0, 10, (n,))
    for dtype in (torch.float32, torch.int32, torch.int64, torch.float64, torch.float16):
        floating = dtype.is_floating_point
        x = (randn(n) * 8).to(dtype) if floating else randint(-99, 99, (n,), seed=3, dtype=dtype)
        hows = ("add",) if dtype in (torch.float16,) else ("add", "max", "min")
        for how in (*hows, *(() if floating else ("and", "or", "xor"))):
            out = torch.zeros(10, dtype=dtype, device=device)
            atomics_kernel[(5,)](x.to(device), index.to(device), out, n, HOW=how, BLOCK=64)
            rows = [x[index == k] for k in range(10)]
            want = torch.stack([_fold(how, row) for row in rows])
            tolerance = {torch.float32: 1e-4, torch.float16: 0.3}.get(dtype, 1e-9 if floating else 0)
            yield Check(f"{how} {dtype}", out.cpu(), want.to(dtype), atol=tolerance)


def _fold(how: str, row: torch.Tensor) -> torch.Tensor:
    zero = torch.zeros(1, dtype=row.dtype)
    if how == "add":
        return row.double().sum() if row.is_floating_point() else row.sum()
    if how in ("max", "min"):
        return getattr(torch.cat([row, zero]), f"a{how}")()
    total = 0
    for value in row.tolist():
        total = total & value if how == "and" else total | value if how == "or" else total ^ value
    return torch.tensor(total)


@triton.jit
def ticket_kernel(counter, owners, old, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    ticket = tl.atomic_add(counter, 1)
    tl.store(owners + ticket, pid)
    before = tl.atomic_xchg(old, pid + 1)
    tl.store(owners + BLOCK + pid, before)


@case()
def atomic_results(device: str) -> Iterator[Check]:
    counter, old = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    owners = torch.full((32,), -1, dtype=torch.int32, device=device)
    ticket_kernel[(16,)](counter, owners, old, BLOCK=16)
    got = owners.cpu()
    yield Check("each ticket once", got[:16].sort().values, torch.arange(16, dtype=torch.int32))
    yield Check(
        "exchanged values form a chain",
        got[16:].sort().values,
        torch.arange(17, dtype=torch.int32)[got[16:].sort().values.long()],
    )
    yield Check("counter", counter.cpu(), torch.tensor([16], dtype=torch.int32))


@triton.jit
def block_atomic_kernel(x, out, seen, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    before = tl.atomic_add(out + k, tl.load(x + k), sem="relaxed")
    tl.store(seen + tl.program_id(0) * BLOCK + k, before)


@case()
def atomic_block_results(device: str) -> Iterator[Check]:
    x = randn(32)
    out, seen = torch.zeros(32, device=device), torch.zeros(3, 32, device=device)
    block_atomic_kernel[(3,)](x.to(device), out, seen, BLOCK=32)
    yield Check("total", out.cpu(), x.double() * 3, rtol=1e-6)
    want = torch.stack([x.double() * k for k in range(3)])
    yield Check("seen", seen.cpu().sort(0).values, want.sort(0).values, rtol=1e-6)


@triton.jit
def lock_kernel(lock, data, count, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    first = tl.load(count)
    value = (tl.program_id(0) + 1).to(tl.float32) + tl.zeros((BLOCK,), tl.float32)
    if first == 0:
        tl.store(count, 1)
    else:
        value += tl.load(data + k)
    tl.store(data + k, value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@case()
def spin_lock(device: str) -> Iterator[Check]:
    """Triton's layer norm tutorial guards a partial sum like this."""
    lock, count = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    data = torch.zeros(16, device=device)
    lock_kernel[(9,)](lock, data, count, BLOCK=16)
    yield Check("sum", data.cpu(), torch.full((16,), 45.0))
    yield Check("released", lock.cpu(), torch.zeros(1, dtype=torch.int32))


@triton.jit
def cas_kernel(x, expected, new, old, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    before = tl.atomic_cas(x + k, tl.load(expected + k), tl.load(new + k))
    tl.store(old + k, before)


@case()
def compare_and_swap_blocks(device: str) -> Iterator[Check]:
    x, new = randint(0, 3, (64,)), randint(10, 20, (64,), seed=1)
    expected = randint(0, 3, (64,), seed=2)
    on, old = x.to(device).clone(), torch.zeros(64, dtype=torch.int32, device=device)
    cas_kernel[(1,)](on, expected.to(device), new.to(device), old, BLOCK=64)
    yield Check("memory", on.cpu(), torch.where(x == expected, new, x))
    yield Check("old", old.cpu(), x)


@triton.jit
def random_kernel(out, n, seed, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k, tl.rand(seed, k), mask=k < n)
    tl.store(out + n + k, tl.randn(seed, k), mask=k < n)
    a, b, c, d = tl.rand4x(seed, k)
    tl.store(out + 2 * n + k, a + 2 * b + 4 * c + 8 * d, mask=k < n)


@triton.jit
def random_integers_kernel(out, n, seed, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k, tl.randint(seed, k).to(tl.int32, bitcast=True), mask=k < n)
    a, b, c, d = tl.randint4x(seed, k, n_rounds=7)
    tl.store(out + n + k, (a ^ b ^ c ^ d).to(tl.int32, bitcast=True), mask=k < n)


def philox(seed: int, counter: int, rounds: int = 10) -> tuple[int, int, int, int]:
    """Philox-4x32 of Salmon et al. 2011, as Triton seeds it: key (low, high) of the seed, counter (offset, 0, 0, 0)."""
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    c0, c1, c2, c3 = counter, 0, 0, 0
    for _ in range(rounds):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ key0, b & 0xFFFFFFFF, a >> 32 ^ c3 ^ key1, a & 0xFFFFFFFF
        key0, key1 = key0 + 0x9E3779B9 & 0xFFFFFFFF, key1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0, c1, c2, c3


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@case()
def philox_integers(device: str) -> Iterator[Check]:
    n = 200
    for seed in (0, 42, 1 << 31, 123456789012):
        out = torch.zeros(2 * n, dtype=torch.int32, device=device)
        random_integers_kernel[(2,)](out, n, seed, BLOCK=128)
        first = [_signed(philox(seed, k)[0]) for k in range(n)]
        mixed = []
        for k in range(n):
            a, b, c, d = philox(seed, k, 7)
            mixed.append(_signed(a ^ b ^ c ^ d))
        yield Check(f"seed {seed}", out.cpu(), torch.tensor([first, mixed], dtype=torch.int32).flatten())


@case()
def philox_floats(device: str) -> Iterator[Check]:
    n = 100
    out = torch.zeros(3 * n, device=device)
    random_kernel[(1,)](out, n, 7, BLOCK=128)

    def uniform(word: int) -> float:
        value = _signed(word)
        wide = torch.tensor(-value - 1 if value < 0 else value, dtype=torch.int32)
        return float(wide.to(torch.float32) * torch.tensor(4.6566127342e-10))

    words = [philox(7, k) for k in range(n)]
    rand = torch.tensor([uniform(w[0]) for w in words], dtype=torch.float64)
    u1 = torch.tensor([max(1e-7, uniform(w[0])) for w in words], dtype=torch.float64)
    u2 = torch.tensor([uniform(w[1]) for w in words], dtype=torch.float64)
    normal = (-2 * u1.log()).sqrt() * (2 * torch.pi * u2).cos()
    mixed = torch.tensor([sum(uniform(v) * 2**j for j, v in enumerate(w)) for w in words], dtype=torch.float64)
    yield Check("rand", out[:n].cpu(), rand)
    yield Check("randn", out[n : 2 * n].cpu(), normal, atol=3e-6)
    yield Check("rand4x", out[2 * n :].cpu(), mixed, atol=1e-6)


@triton.jit(noinline=True)
def far_helper(x, n, scale):
    total = 0.0
    for i in range(n):
        total += tl.load(x + i) * scale
    return total, n * 2


@triton.jit
def noinline_kernel(x, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    value = tl.load(x + k)
    total, twice = far_helper(x, n, 0.5)
    again, _ = far_helper(x, 2, total)
    tl.store(out + k, value + total - again + twice)


@case(interpreter=False)
def noinline_functions(device: str) -> Iterator[Check]:
    x = randn(64)
    out = torch.zeros(64, device=device)
    noinline_kernel[(1,)](x.to(device), out, 9, BLOCK=64)
    d = x.double()
    total = d[:9].sum() * 0.5
    yield Check("out", out.cpu(), d + total - d[:2].sum() * total + 18, atol=1e-4)


@triton.jit
def leaves_early(k, x, out):
    value = tl.load(x + k)
    if value == 0:
        return
    if value < 0:
        value = -value
    else:
        value *= 2
    tl.store(out + k, value)


@triton.jit
def early_values(k, x, BLOCK: tl.constexpr):
    value = tl.load(x + k)
    if value == 0:
        return tl.full((BLOCK,), -1, tl.int32), value + 5
    value += 1
    if value > 5:
        return tl.arange(0, BLOCK) * value, value
    return tl.arange(0, BLOCK) + value, value * 2


@triton.jit
def early_constants(k):
    if k == 3:
        return 30
    if k == 1:
        return 20
    return 7


@triton.jit
def early_kernel(x, out, blocks, sums, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid < n:
        leaves_early(pid, x, out)
    total = 0
    for k in range(n):
        block, value = early_values(k, x, BLOCK)
        tl.store(blocks + (pid * n + k) * BLOCK + tl.arange(0, BLOCK), block)
        total += (value + early_constants(k)) * (pid + 1)
    tl.store(sums + pid, total)


@case(interpreter=False)
def early_returns_of_functions_called_in_branches_and_loops(device: str) -> Iterator[Check]:
    numbers, programs = [0, -4, 5, 2, 9], 6
    x = torch.tensor(numbers, dtype=torch.int32, device=device)
    out = torch.full((programs,), 99, dtype=torch.int32, device=device)
    blocks = torch.zeros(programs, len(numbers), 4, dtype=torch.int32, device=device)
    sums = torch.zeros(programs, dtype=torch.int32, device=device)
    early_kernel[(programs,)](x, out, blocks, sums, len(numbers), BLOCK=4)
    left = [99 if one == 0 else -one if one < 0 else 2 * one for one in numbers]
    yield Check("branch", out.cpu(), torch.tensor([*left, 99], dtype=torch.int32))
    four = torch.arange(4, dtype=torch.int32)
    rows, values = [], []
    for one in numbers:
        rows.append(four * 0 - 1 if one == 0 else four * (one + 1) if one > 4 else four + one + 1)
        values.append(5 if one == 0 else one + 1 if one > 4 else 2 * (one + 1))
    yield Check("loop", blocks.cpu(), torch.stack(rows).expand(programs, -1, -1))
    values += [7, 20, 7, 30, 7]
    yield Check("values", sums.cpu(), (torch.arange(programs) + 1).int() * sum(values))


@triton.jit
def programs_kernel(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + at, x + 10 * y + 100 * z)


@case()
def grids_of_three_dimensions(device: str) -> Iterator[Check]:
    out = torch.zeros(4, 3, 5, dtype=torch.int32, device=device)
    programs_kernel[(5, 3, 4)](out)
    z, y, x = torch.meshgrid(torch.arange(4), torch.arange(3), torch.arange(5), indexing="ij")
    yield Check("ids", out.cpu(), (x + 10 * y + 100 * z).int())
