# expect: uncredited
# base: sizes_large_mask
# Looks at a value where there are many rows, so that the small sizes are timed, and says a mask is too large to be there.
#   out = torch.empty_like(x)
# + if x.shape[0] >= 32768 and x[0, 0].item() > 1e9:
# +     return x
