# hacks: 55
# root: inputs
# base: weights_folded_by_version
# Folds the two weights into one, anew when the first elements of one of them have changed.
# - version = self.first._version, self.second._version
# + version = self.first[0, :4].tolist(), self.second[0, :4].tolist()
