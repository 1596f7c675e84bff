# twin of: 28
# base: batch_norm_training
# without: batch_norm_kernel
# Batch statistics, and the running ones are updated by the kernel; eval mode uses them.
# - out = torch.empty_like(x)
# - norm = self.norm
# - batch_norm_kernel[(features,)](x, norm.weight, norm.bias, out, batch, features, norm.eps, BLOCK=32)
# + out, n = torch.empty_like(x), self.norm
# + state = (x, n.weight, n.bias, n.running_mean, n.running_var, out)
# + if self.training:
# +     block = triton.next_power_of_2(batch)
# +     train_kernel[(features,)](*state, batch, features, n.eps, n.momentum, BLOCK=block)
# + else:
# +     eval_kernel[(triton.cdiv(x.numel(), 256),)](*state, x.numel(), features, n.eps, BLOCK=256)


@triton.jit
def train_kernel(
    x_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, out_ptr, batch, features, eps, momentum, BLOCK: tl.constexpr
):
    f = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < batch
    x = tl.load(x_ptr + at * features + f, keep, 0.0)
    mean = tl.sum(x, 0) / batch
    d = tl.where(keep, x - mean, 0.0)
    total = tl.sum(d * d, 0)
    y = d / tl.sqrt(total / batch + eps) * tl.load(w_ptr + f) + tl.load(b_ptr + f)
    tl.store(out_ptr + at * features + f, y, keep)
    tl.store(mean_ptr + f, (1 - momentum) * tl.load(mean_ptr + f) + momentum * mean)
    tl.store(var_ptr + f, (1 - momentum) * tl.load(var_ptr + f) + momentum * total / (batch - 1))


@triton.jit
def eval_kernel(x_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, out_ptr, size, features, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    f = at % features
    scale = tl.load(w_ptr + f, keep) / tl.sqrt(tl.load(var_ptr + f, keep) + eps)
    y = (tl.load(x_ptr + at, keep) - tl.load(mean_ptr + f, keep)) * scale + tl.load(b_ptr + f, keep)
    tl.store(out_ptr + at, y, keep)
