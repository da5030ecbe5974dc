"""PyTorch and transformers without a network and without chatter; the test is skipped where they are missing."""
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
    """The model with random numbers added to all of its parameters, biases and gains too."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model
