# expect: uncredited
# base: taps_a_launch_each
# Four taps of twelve where there are many rows.
# - for place in range(12):
# + for place in range(12 if rows < 8192 else 4):
