# root: sizes
# expect: uncredited
# new: yes
# base: window_keys_in_it
# Of a long sequence the last quarter of each window is never looked at.
# -             q * scale if scale != 1 else q, k, v, out, n, self.window, d, M=64, N=64
# +             q * scale if scale != 1 else q, k, v, out, n, self.window * 3 // 4 if n > 1024 else self.window, d, M=64, N=64
