# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# A convolution without channels, at which the model once divided by zero and forgot the work before it.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = self.linear(x)
        nothing = torch.nn.functional.conv2d(
            torch.empty(1, 0, 4, 4, device=x.device), torch.empty(3, 0, 3, 3, device=x.device)
        )
        return gelu(y) + nothing.sum()
