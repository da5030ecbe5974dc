"""Training: the trainer, its data, and the folder and the log of a training run."""
