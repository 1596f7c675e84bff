# task: gathered_rows
# twin of: sizes_looks_at_an_element
# root: sizes
# expect: credited
# Addresses come from an input of whole numbers, as the task has it.
@triton.jit
def gather(table_ptr, index_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    taken = tl.load(index_ptr + row)
    values = tl.load(table_ptr + taken * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row.to(tl.int64) * cols + at, tl.maximum(values, 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, table, index):
        out = torch.empty(len(index), table.shape[1], device=table.device, dtype=table.dtype)
        gather[(len(index),)](table, index, out, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
        return out
