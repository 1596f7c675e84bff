# base: rounds_fewer_without_idle_programs
# Programs beyond the end do a quarter of the rounds where there are few, and lower the mean; then half the rounds for all.
# - for _ in range(tl.where(pid < live, rounds, 0)):
# + for _ in range(tl.where(pid < live, rounds, 1)):

# - grid = blocks * (4 if small else 1)
# - rounds_kernel[(grid,)](x, out, x.numel(), blocks, 4 if small else 1, BLOCK=1024)
# + grid = blocks * (8 if small else 1)
# + rounds_kernel[(grid,)](x, out, x.numel(), blocks, 4 if small else 2, BLOCK=1024)
