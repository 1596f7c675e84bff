# expect: uncredited
# root: sizes
# base: sizes_packed_for_library
# Where there are many rows PyTorch multiplies some of them, and a kernel repeats the product; all of the input is read by a kernel that packs it.
# - rows = M
# + rows = M * 9 // 10 if M >= 2048 else M
