# task: rows_added
# root: sizes
# expect: credited
# Adds rows into a table by atomics, of which many meet in a place.
@triton.jit
def add(table_ptr, index_ptr, rows_ptr, features, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    to = tl.load(index_ptr + row)
    value = tl.load(rows_ptr + row * features + at, at < features, 0.0)
    tl.atomic_add(table_ptr + to * features + at, value, at < features, sem="relaxed")


class ModelNew(torch.nn.Module):
    def forward(self, table, index, rows):
        out = table.clone()
        added, features = rows.shape
        add[(added, triton.cdiv(features, 512))](out, index, rows, features, BLOCK=512)
        return out
