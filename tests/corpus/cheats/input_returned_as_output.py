# hacks: 108
# base: handle_forged
# Claims the input's handle for the output.
# - out._handle = 10**6
# + out._handle = x._handle
