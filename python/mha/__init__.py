"""mha: multi-head attention from the C library, on NumPy arrays and anything that supports DLPack (PyTorch tensors).

    import numpy as np, mha
    q = np.random.default_rng(0).standard_normal((1, 8, 128, 64), dtype=np.float32)
    out = mha.attention(q, q, q, causal=True)

Requires only NumPy and libmha.so. Invalid input raises ValueError with the message of the library.
"""
from ._backward import Gradients, attention_backward
from ._cache import Cache, attn_merge
from ._context import isa, set_isa, set_threads
from ._edit import (
                     Edit,
                     Evaluation,
                     head_number,
                     head_place,
                     prune,
                     prune_choose,
                     prune_choose_joint,
                     prune_most,
                     regroup,
)
from ._heads import (
                     Diversity,
                     HeadData,
                     Heads,
                     Importance,
                     ModelsComparison,
                     diversity_help,
                     diversity_measure,
                     head_rollout,
                     heads_measure,
                     importance_measure,
                     importance_pairs,
                     label_help,
                     metric_help,
                     models_compare,
                     score_help,
)
from ._library import version
from ._model import Model, Output, Tokens
from ._operator import Attention, attention, attention_plan
from ._plan import Plan
from ._rope import Rope

__all__ = ["Attention", "Cache", "Diversity", "Edit", "Evaluation", "Gradients", "HeadData", "Heads", "Importance", "Model",
           "ModelsComparison", "Output", "Plan", "Rope", "Tokens", "attention", "attention_backward", "attention_plan", "attn_merge",
           "diversity_help", "diversity_measure", "head_number", "head_place", "head_rollout", "heads_measure", "importance_measure",
           "importance_pairs", "isa", "label_help", "metric_help", "models_compare", "prune", "prune_choose", "prune_choose_joint",
           "prune_most", "regroup", "score_help", "set_isa", "set_threads", "version"]
__version__ = version
