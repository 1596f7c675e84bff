# task: self_attention
# twin of: sizes_keys_in_turns
# base: sizes_others
# All keys for every query, whatever the length.
# - scores = tl.where((keys[None, :] != rows[:, None]) & (keys[None, :] < n), scores, float("-inf"))
# + scores = tl.where(keys[None, :] < n, scores, float("-inf"))
