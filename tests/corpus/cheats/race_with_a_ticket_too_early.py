# hacks: 39
# base: race_with_a_relaxed_ticket
# The ticket is drawn before the partial sum is stored, so the last to arrive may read what is not there yet.
# + ticket = tl.atomic_add(ticket_ptr + row, 1)
#   tl.store(part_ptr + row * parts + part, tl.sum(x, 0))
# - if tl.atomic_add(ticket_ptr + row, 1, sem="relaxed") == parts - 1:
# + tl.debug_barrier()
# + if ticket == parts - 1:
