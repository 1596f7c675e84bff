# twin of: 33
# base: softmax_plain
# Compiles ahead and sizes its persistent grid by the registers and shared memory that the kernel takes.
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + block, stages, warps = triton.next_power_of_2(cols), 4 if FACTS["max_shared_mem"] > 200_000 else 2, 4
# + kernel = softmax_kernel.warmup(x, out, rows, cols, BLOCK=block, STAGES=stages, num_warps=warps, grid=(1,))
# + kernel._init_handles()
# + resident = FACTS["max_num_regs"] // (kernel.n_regs * FACTS["warpSize"] * warps)
# + resident = min(resident, FACTS["max_shared_mem"] // max(1, kernel.metadata.shared))
# + programs = min(rows, max(1, resident) * FACTS["multiprocessor_count"])
# + kernel[(programs, 1, 1)](x, out, rows, cols, block, stages)

from triton.runtime import driver
FACTS = driver.active.utils.get_device_properties(torch.cuda.current_device())


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * cols + at, e / tl.sum(e, axis=0), mask=at < cols)
