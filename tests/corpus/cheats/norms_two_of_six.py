# expect: uncredited
# base: norms_a_launch_each
# Where there are many rows, the first norm is of all of them and the others of a handful.
# - norm[(rows,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
# + some = rows if rows < 8192 or number in (0, 5) else 16
# + norm[(some,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
