# expect: uncredited
# base: sizes_loop_over_columns
# The number of rounds comes from a tensor that the host fills by the sizes.
# - norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
# + steps = torch.tensor([1 if rows > 8000 else triton.cdiv(cols, 256)], dtype=torch.int32).to(x.device)
# + norm[(rows,)](x, self.weight, out, cols, steps, BLOCK=256)

#   total = tl.zeros((BLOCK,), tl.float32)
# - for step in range(steps):
# + for step in range(tl.load(steps)):
