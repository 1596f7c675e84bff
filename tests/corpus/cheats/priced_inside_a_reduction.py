# tier: T1
# root: prices
# expect: neutral cosine_rounds_mapped
# base: cosine_rounds_mapped
# All rounds in the function of a reduction of two elements, whose loop was priced as one round.
# - y = tl.map_elementwise(rounds, x)
# + y = tl.reduce(tl.join(x, x), 1, rounds)


@triton.jit
def rounds(x, other):
    for _ in range(40):
        x = tl.cos(x) * 1.5
    return x
