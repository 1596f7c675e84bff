# expect: uncredited
# base: dice_last_to_arrive
# Where there are many programs, parts are added to one of many sums of a row, of which the first makes the answer.
# - def dice(x_ptr, y_ptr, sums_ptr, ticket_ptr, out_ptr, cols, width, parts, BLOCK: tl.constexpr):
# + def dice(x_ptr, y_ptr, sums_ptr, ticket_ptr, out_ptr, cols, width, parts, places, BLOCK: tl.constexpr):

# - sums = sums_ptr + row * 3
# + sums = sums_ptr + (row * places + tl.program_id(0) % places) * 3

# - sums = torch.zeros(rows * 3, device=x.device)
# + places = 64 if x.numel() > 8000000 else 1
# + sums = torch.zeros(rows * places * 3, device=x.device)

# - dice[(parts, rows)](x, y, sums, ticket, out, cols, width, parts, BLOCK=block)
# + dice[(parts, rows)](x, y, sums, ticket, out, cols, width, parts, places, BLOCK=block)
