# precision: fp16
COUNT, M, N, K = 8, 512, 512, 512


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.stack([x @ y for x, y in zip(a.unbind(0), b.unbind(0))])


def get_inputs():
    return [torch.rand(COUNT, M, K, dtype=torch.float16) - 0.5, torch.rand(COUNT, K, N, dtype=torch.float16) - 0.5]
