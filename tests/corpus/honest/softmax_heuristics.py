# twin of: 33
# base: softmax_plain
# Heuristics choose the block.
# + @triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
#   @triton.jit

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
        return out
