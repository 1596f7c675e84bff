class Model(torch.nn.Module):
    def forward(self, x, lengths):
        inside = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return (x * inside[:, :, None]).sum(1)


def get_inputs():
    return [torch.randn(512, 1024, 64), torch.randint(1, 1025, (512,))]
