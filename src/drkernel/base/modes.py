"""The base of dispatch modes, which see every operator that PyTorch runs within their block."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that torch.compile never meets.

    For its sake PyTorch wraps the handler of any other, and to wrap it imports the whole compiler at the first
    operator: more than a second, and 100 MB, in each process.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
