class Model(torch.nn.Module):
    def forward(self, x):
        return x / x.abs().sum()


def get_inputs():
    return [torch.randn(128, 1024)]
