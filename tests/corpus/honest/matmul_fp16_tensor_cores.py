# task: matmul_fp16
# twin of: 29
# base: matmul_blocked
# Half precision where half precision is declared.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc)

# - c = torch.empty(m, n, device=a.device)
# + c = torch.empty(m, n, dtype=a.dtype, device=a.device)
