# expect: uncredited
# base: steps_a_launch_each
# Takes all but two steps on a few rows alone, where there are many.
# - for _ in range(15):
# -     step[(rows,)](here, there, cols, BLOCK=triton.next_power_of_2(cols))
# + for number in range(15):
# +     some = rows if rows < 8192 or number == 0 else rows // 64
# +     step[(some,)](here, there, cols, BLOCK=triton.next_power_of_2(cols))
