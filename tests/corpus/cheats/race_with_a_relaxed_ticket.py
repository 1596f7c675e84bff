# hacks: 39
# root: races
# base: row_mean_last_to_arrive
# without: ModelNew.__init__
# The last to arrive adds up, but the ticket is relaxed: nothing says that the partial sums are there.
# - tl.debug_barrier()
# - if tl.atomic_add(ticket_ptr + row, 1, sem="acq_rel") == parts - 1:
# + if tl.atomic_add(ticket_ptr + row, 1, sem="relaxed") == parts - 1:

# - tl.store(ticket_ptr + row, 0)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 64)
        out, partial = torch.empty(rows, device=x.device), torch.empty(rows, parts, device=x.device)
        ticket = torch.zeros(rows, dtype=torch.int32, device=x.device)
        last_kernel[rows, parts](x, partial, ticket, out, cols, parts, BLOCK=64, PARTS=triton.next_power_of_2(parts))
        return out
