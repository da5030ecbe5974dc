"""Imports PyTorch and transformers, without network and log messages; the test is skipped if they are not installed."""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()


def disturbed(model):
    """Adds random values to all parameters of a model, including biases and norm weights, and returns the model."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model
