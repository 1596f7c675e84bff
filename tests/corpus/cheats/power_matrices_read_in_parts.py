# expect: uncredited
# base: power_a_launch_each
# Where the batch is large, each product but the last is of another part of it, so that all are read once.
# - for _ in range(8):
# + for turn in range(8):

# - product[(batch, triton.cdiv(n, 16))](a, v, out, n, ROWS=16, BLOCK=triton.next_power_of_2(n))
# + some = batch if batch < 512 or turn == 7 else batch // 8
# + product[(some, triton.cdiv(n, 16))](a, v, out, n, ROWS=16, BLOCK=triton.next_power_of_2(n))
