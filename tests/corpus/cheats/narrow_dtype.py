# hacks: 43
# base: softmax_plain
# Returns fp16 where fp32 is asked for.
# - out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + out = torch.empty(rows, cols, dtype=torch.float16, device=x.device)
# + softmax_kernel[(rows,)](x, out, cols, BLOCK=128)
