"""TorchInductor on a simulated GPU: PyTorch's own compiler writes the kernels, and the device runs them."""
