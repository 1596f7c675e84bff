"""One call of a candidate on its task's inputs, in a process of its own: for tools that watch a process.

    python one_call.py REFERENCE CANDIDATE

Nothing is sandboxed and no answer is checked: for kernels that you trust. On a GPU, under NVIDIA's compute-sanitizer
(`PYTORCH_NO_CUDA_MEMORY_CACHING=1`, or PyTorch's allocator hides what lies behind a tensor); without one, under
`drkernel sim one_call.py -- REFERENCE CANDIDATE`.
"""

import runpy
import sys

import torch

reference, candidate = (runpy.run_path(path) for path in sys.argv[1:])
torch.manual_seed(0)
module = candidate["ModelNew"](*reference.get("get_init_inputs", list)()).cuda()
with torch.no_grad():
    module(*(x.cuda() if isinstance(x, torch.Tensor) else x for x in reference["get_inputs"]()))
torch.cuda.synchronize()
