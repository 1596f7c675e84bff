# task: literal_rows
# base: listed_softmax
# A block for a row of two inputs whose equal sizes are numbers.
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax[(rows,)](x, y, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
