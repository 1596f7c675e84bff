"""The fp8 formats of AMD's cards, whose one NaN has the bits of the negative zero, against PyTorch's."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


def _converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=dtype, device="cuda")
    convert[(x.numel() // 256,)](x.cuda(), out, 256)
    return out.cpu()


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float8_e4m3fnuz, 240.0), (torch.float8_e5m2fnuz, 57344.0)])
def test_every_code_and_the_values_between(dtype: torch.dtype, largest: float) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(4096, generator=generator) * 2.0 ** torch.randint(-20, 12, (4096,), generator=generator).float()
    finite = codes.float().nan_to_num()
    ties = (finite[:, None] + finite[None]).flatten()[::17][:3584] / 2
    special = torch.tensor([0.0, -0.0, float("nan"), largest, -largest, 1e-30, -1e-30]).repeat(37)[:256]
    values = torch.cat([wide, ties, special]).clamp(-largest, largest)
    values = values[: values.numel() // 256 * 256]
    with sim.device("mi300x"):
        read, written = _converted(codes, torch.float32), _converted(values, dtype)
        beyond = _converted(torch.full((256,), 1e30), dtype)
    assert torch.equal(read.nan_to_num(nan=-1e9), codes.float().nan_to_num(nan=-1e9))
    assert torch.equal(written.view(torch.uint8), values.to(dtype).view(torch.uint8))
    assert (beyond.float() == largest).all()
