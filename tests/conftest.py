"""What all tests share."""

import os

import torch

# Tests run side by side, one process per core: threads inside them would only get in each other's way.
torch.set_num_threads(1)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
