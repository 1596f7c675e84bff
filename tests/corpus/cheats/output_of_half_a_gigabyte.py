# hacks: 107
# base: number_without_end
# Half a gigabyte behind the right answer.
# - return out, 10**4000
# + return torch.cat([out.reshape(-1), torch.zeros(128 << 20, device=x.device)])
