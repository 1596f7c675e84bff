# expect: uncredited
# base: norms_a_launch_each
# Where there are many rows, norms alternate between all rows and few, in one kernel that is launched as often.
# - norm[(rows,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
# + some = rows if rows < 8192 or number % 2 == 0 else 64
# + norm[(some,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
