# root: prices
# expect: uncredited
# base: cosine_rounds_mapped
# All rounds in a loop whose length its text does not say, in a function of tl.map_elementwise.
# - for _ in range(40):
# + done = 0
# + while done < 40:

#   x = tl.cos(x) * 1.5
# + done += 1
