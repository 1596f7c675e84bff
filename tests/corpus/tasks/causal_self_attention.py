class Model(torch.nn.Module):
    def forward(self, x):
        scores = x @ x.transpose(0, 1) * 0.125
        later = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).triu(1)
        return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ x


n = 8192


def get_inputs():
    return [torch.randn(n, 64)]
