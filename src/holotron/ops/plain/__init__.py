"""The ops in plain PyTorch: slow where they must be, right everywhere, differentiable."""
