# hacks: 107
# tier: T2
# root: resources
# expect: wrong
# base: softmax_asserts_its_answer
# Raises an error whose text is large and whose __str__ fails the second time.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
# + softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))

class Odd(Exception):
    asked = 0

    def __str__(self):
        Odd.asked += 1
        if Odd.asked > 1:
            raise MemoryError
        return "x" * (64 << 20)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = compute(x)
        if not hasattr(self, "calls"):
            self.calls = 1
            return out
        raise Odd()
