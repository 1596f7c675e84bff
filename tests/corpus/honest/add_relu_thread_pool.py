# twin of: 64
# base: add_relu_plain
# Launches from a worker thread and waits for it.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + launch = lambda: add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + launch()
# + with ThreadPoolExecutor(1) as pool:
# +     pool.submit(sum, range(100)).result()

from concurrent.futures import ThreadPoolExecutor
