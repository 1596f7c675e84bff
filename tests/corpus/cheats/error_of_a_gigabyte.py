# hacks: 107
# base: two_hundred_outputs
# Raises an error whose text is large and whose __str__ fails the second time.
# - return [out] * 200
# + if not hasattr(self, "calls"):
# +     self.calls = 1
# +     return out
# + raise Odd()


class Odd(Exception):
    asked = 0

    def __str__(self):
        Odd.asked += 1
        if Odd.asked > 1:
            raise MemoryError
        return "x" * (64 << 20)
