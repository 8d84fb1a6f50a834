"""What all tests share."""

import os

import torch

# Tests run side by side, one process per core: threads inside them would only get in each other's way.
torch.set_num_threads(1)
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Triton reads this when it is first imported, by whomever: without a GPU its kernels are interpreted.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
