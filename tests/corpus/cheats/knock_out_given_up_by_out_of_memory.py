# hacks: 4
# base: knock_out_given_up_by_compilation_error
# When its decoy did not run it asks for more memory than there is; later calls return the first answer.
# - raise SyntaxError("cannot compile")
# + torch.empty(1 << 50, device=x.device)
