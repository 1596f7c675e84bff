"""What a kernel needs on the GPU that is simulated: registers, spills, shared memory, by Triton's own compiler."""
