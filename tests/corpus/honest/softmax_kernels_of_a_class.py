# root: reachability
# base: softmax_persistent
# without: softmax_kernel
# Kernels as static methods in a table, their helpers made in nested functions, a plan that is cached by shape.
# - softmax_kernel[(7,)](x, out, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
# + name, block = plan(x.shape[1])
# + TABLE[name][lambda meta: (x.shape[0],)](x, out, x.shape[1], BLOCK=block)

import functools
LOG2E = tl.constexpr(1.4426950408889634)


def helpers():
    @triton.jit
    def largest(v):
        return tl.max(v, axis=0)

    @triton.jit
    def shifted(v):
        return tl.exp2((v - largest(v)) * LOG2E)

    return shifted


shifted = helpers()


class Kernels:
    @staticmethod
    @triton.jit
    def row(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        e = shifted(tl.load(x_ptr + tl.program_id(0) * cols + at, at < cols, -float("inf")))
        tl.store(out_ptr + tl.program_id(0) * cols + at, e / tl.sum(e, 0), at < cols)


TABLE = {"row": Kernels.row}


@functools.lru_cache
def plan(cols):
    return "row", triton.next_power_of_2(cols)
