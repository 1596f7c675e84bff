# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# The product as weighted sums of an embedding's rows, once priced as an element-wise pass.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        rows, inner = x.shape
        picked = torch.arange(inner, device=x.device).repeat(rows)
        starts = torch.arange(rows, device=x.device) * inner
        table = weight.t().contiguous()
        sums = torch.nn.functional.embedding_bag(
            picked, table, starts, mode="sum", per_sample_weights=x.reshape(-1)
        )
        return gelu(sums + bias)
