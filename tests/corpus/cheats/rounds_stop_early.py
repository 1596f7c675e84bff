# expect: uncredited
# base: rounds_of_halves
# Stops after as many rounds as there are where it is checked.
# - while back < n:
# + while back < min(n, 1024 if rows >= 64 else n):
