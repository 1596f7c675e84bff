class Model(torch.nn.Module):
    def forward(self, x):
        return torch.conj(2.0 * x)


def get_inputs():
    return [torch.randn(256, 512, dtype=torch.complex64)]
