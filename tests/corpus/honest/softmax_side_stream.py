# twin of: 62
# base: softmax_plain
# Runs on a side stream and waits for it properly.
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        rows, cols = x.shape
        out = torch.empty_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        torch.cuda.current_stream().wait_stream(self.stream)
        return out
