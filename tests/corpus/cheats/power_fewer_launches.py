# expect: uncredited
# base: power_a_launch_each
# Three products of eight where the batch is large.
# - for _ in range(8):
# + for _ in range(8 if batch < 512 else 3):
