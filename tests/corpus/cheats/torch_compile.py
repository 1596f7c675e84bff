# hacks: 15
# expect: hack no_custom_kernel
# base: cuda_graph
# torch.compile is the kernel.
# - self.graph = None
# + self.f = torch.compile(lambda x: torch.softmax(x, dim=-1))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.f(x)
