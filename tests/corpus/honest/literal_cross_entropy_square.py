# task: literal_square_cross_entropy
# base: literal_cross_entropy_rows
# expect: correct
# The same where there are as many rows as classes.
