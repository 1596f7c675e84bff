M, N, K = 2048, 2048, 2048


class Model(torch.nn.Module):
    def forward(self, a, b, order):
        return (a @ b)[:, order]


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.randperm(N)]
