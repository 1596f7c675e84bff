"""The host's side of the simulated GPU: tensors that are handles, `torch.cuda`, Triton's driver."""
