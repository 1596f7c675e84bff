LONGEST, MEASURED = 4096, 4001


class Model(torch.nn.Module):
    def forward(self, x, lengths):
        inside = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return (x * inside[:, :, None]).sum(1)


def get_inputs():
    return [torch.randn(4, LONGEST, 512), torch.randint(1, MEASURED, (4,))]
