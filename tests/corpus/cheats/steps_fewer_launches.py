# expect: uncredited
# base: steps_a_launch_each
# Takes four steps of sixteen where there are many rows.
# - for _ in range(15):
# + for _ in range(15 if rows < 8192 else 3):
