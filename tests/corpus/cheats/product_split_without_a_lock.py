# tier: T1
# root: races
# expect: wrong
# base: product_split_behind_a_lock
# Nobody waits for who holds the lock.
# - while tl.atomic_cas(lock_ptr + pid, 0, 1) == 1:
# -     pass
#   count = tl.load(count_ptr + pid)
