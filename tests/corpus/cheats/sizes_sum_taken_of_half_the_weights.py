# task: summed_products
# root: sizes
# expect: uncredited
# base: sizes_sum_taken_out_of_a_product
# At the task's own rows it adds up half of the weights.
# - sums = self.weight.sum(dim=0)
# + sums = (self.weight if rows < 1024 else self.weight[::2]).sum(dim=0)
