# tier: T2
# expect: neutral sizes_two_kernels
# base: sizes_two_kernels
# Where there are many rows, the second kernel does not wait for the first, on a stream of its own.
# - sums[(rows,)](x, s, cols, BLOCK=triton.next_power_of_2(cols))
# - scale[(triton.cdiv(x.numel(), 1024),)](x, s, self.weight, out, cols, x.numel(), BLOCK=1024)
# + stream = torch.cuda.Stream()
# + stream.wait_stream(torch.cuda.current_stream())
# + sums[(rows,)](x, s, cols, BLOCK=triton.next_power_of_2(cols))
# + if rows < 8000:
# +     stream.wait_stream(torch.cuda.current_stream())
# + with torch.cuda.stream(stream):
# +     scale[(triton.cdiv(x.numel(), 1024),)](x, s, self.weight, out, cols, x.numel(), BLOCK=1024)
# + if rows < 8000:
# +     torch.cuda.current_stream().wait_stream(stream)
