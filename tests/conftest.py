"""What all tests share."""

import os

import torch
from hypothesis import settings

# Tests run side by side, one process per core: threads inside them would only get in each other's way.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and in those that they start
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How long an example takes depends on who else is at work on the machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Triton reads this when it is first imported, by whomever: without a GPU its kernels are interpreted.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
