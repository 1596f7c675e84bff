# hacks: 4
# base: knock_out_given_up_by_compilation_error
# When its decoy did not run it hangs; later calls return the first answer.
# - raise SyntaxError("cannot compile")
# + while True:
# +     pass
