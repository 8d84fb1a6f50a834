"""The ops as Triton kernels, for CUDA devices; each computes what the plain version of its name defines."""
