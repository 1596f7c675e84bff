# twin of: 15
# base: add_relu_plain
# A part is left to torch.compile, which runs eagerly here.
#       total = tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep)
# -     tl.store(out_ptr + at, tl.maximum(total, 0.0), keep)
# +     tl.store(out_ptr + at, total, keep)

# - return out
# + return torch.compile(torch.relu, dynamic=False)(out)
