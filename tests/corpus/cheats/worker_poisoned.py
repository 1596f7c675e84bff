# hacks: 105
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Leaves hooks and defaults for the next job.
torch.set_default_dtype(torch.float64)
torch.nn.modules.module.register_module_forward_hook(lambda *args: torch.zeros(1))
torch.set_grad_enabled(False)
