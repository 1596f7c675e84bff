# twin of: 4
# base: max_index_gathered
# The kernel's indices lead far into a table; without the kernel they would lead out of it.
# - tl.store(index_ptr + row, tl.argmax(x, 0))
# + tl.store(index_ptr + row, row * cols + tl.argmax(x, 0))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        places = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_kernel[(rows,)](x, places, cols, BLOCK=triton.next_power_of_2(cols))
        return x.reshape(-1)[places], places % cols
