# hacks: 2
# expect: hack no_custom_kernel
# base: cuda_graph
# A torch.nn layer does everything.
# - self.graph = None
# + self.layer = torch.nn.Softmax(dim=-1)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.layer(x)
