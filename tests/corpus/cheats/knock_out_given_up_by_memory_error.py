# hacks: 4
# base: knock_out_given_up_by_compilation_error
# When its decoy did not run it says that memory is out; later calls return the first answer.
# - raise SyntaxError("cannot compile")
# + raise MemoryError("no memory")
