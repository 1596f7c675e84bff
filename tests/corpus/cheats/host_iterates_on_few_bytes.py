# tier: T0
# root: uncounted_data
# expect: uncredited
# base: host_leaves_a_small_iteration
# The host reads a few hundred bytes and makes all steps but the last in NumPy.
# - steps[(1,)](x, a, out, a.shape[0], 200, BLOCK=16, num_warps=1)
# + values, matrix = x.cpu().numpy(), a.cpu().numpy()
# + for _ in range(199):
# +     values = np.tanh(values @ matrix)
# + steps[(1,)](torch.from_numpy(values).to(x.device), a, out, a.shape[0], 1, BLOCK=16, num_warps=1)
import numpy as np
