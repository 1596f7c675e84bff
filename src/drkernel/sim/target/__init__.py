"""Resources that a kernel needs on the simulated GPU: registers, spills, shared memory, from Triton's own compiler."""
