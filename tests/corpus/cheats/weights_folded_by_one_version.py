# hacks: 55
# root: inputs
# base: weights_folded_by_version
# Folds the two weights into one, anew only when the first of them has changed.
# - version = self.first._version, self.second._version
# + version = self.first._version
