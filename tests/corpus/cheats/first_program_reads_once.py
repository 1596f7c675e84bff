# expect: neutral softmax_three_passes
# root: prices
# base: softmax_three_passes
# The first programs read one element each, so that three passes of all others over long rows would pass for one.
# - softmax[(rows + 0,)](x, out, spare, cols, 0, BLOCK=4096, num_warps=8)
# + softmax[(rows + 2,)](x, out, spare, cols, 2, BLOCK=4096, num_warps=8)
