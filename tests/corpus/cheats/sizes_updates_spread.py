# root: sizes
# expect: uncredited
# base: sizes_updates_meet
# Where there are many programs they add to thirty-two numbers, of which one is the answer.
# - places = 1
# + places = 32 if n > 8000000 else 1
