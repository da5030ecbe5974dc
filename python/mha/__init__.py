"""mha: multi-head attention from the C library, on NumPy arrays and anything that supports DLPack (PyTorch tensors).

    import numpy as np, mha
    q = np.random.default_rng(0).standard_normal((1, 8, 128, 64), dtype=np.float32)
    out = mha.attention(q, q, q, causal=True)

Requires only NumPy and libmha.so. Invalid input raises ValueError with the message of the library.
"""
from ._arrays.files import (
    File,
    TensorsWriter,
    file_write,
    file_write_check,
    npy_write,
    tensors_read,
    tensors_read_into,
    tensors_write,
)
from ._arrays.rng import Rng
from ._attention.backward import Gradients, attention_backward
from ._attention.cache import Cache, attn_merge
from ._attention.functions import Functions
from ._attention.operator import attention, attention_plan
from ._attention.plan import Plan
from ._attention.results import Attention
from ._binding.context import isa, set_isa, set_threads
from ._binding.library import version
from ._binding.machine import isa_list, machine_peak_fma, machine_peak_read, threads
from ._binding.progress import set_progress
from ._draw.report import Report, report
from ._heads.circuits import PromptPair, kl_divergence, knockout_logits, patch_normalized, prompt_noise
from ._heads.diversity import (
    Diversity,
    ModelsComparison,
    diversity_help,
    diversity_measure,
    head_rollout,
    models_compare,
)
from ._heads.edit import (
    Edit,
    Evaluation,
    cross_head_number,
    cross_head_place,
    head_number,
    head_place,
    prune,
    regroup,
    regroup_method_help,
)
from ._heads.head_data import HeadData, held_out_distinct, held_out_split
from ._heads.head_layouts import (
    HeadLayout,
    HeadLayoutAdvice,
    HeadLayoutOptions,
    HeadLayouts,
    head_layout_advise,
    head_layout_measure,
    head_layout_resolve,
    head_layout_variant_help,
    head_layout_variants,
    head_layouts,
)
from ._heads.importance import (
    HeadScores,
    Importance,
    importance_measure,
    importance_pairs,
    score_help,
    score_needs_loss,
)
from ._heads.layout_training import (
    LayoutModel,
    LayoutTraining,
    LayoutTrial,
    layout_models,
    layout_train,
    mean_interval,
    median,
    student_quantile,
)
from ._heads.logits import LogitAttribution, LogitLens, logit_attribution, logit_lens
from ._heads.measure import HeadMap, Heads, HeadThresholds, heads_measure, heads_of_maps, label_help, metric_help
from ._heads.prune_choice import (
    Kept,
    prune_choose,
    prune_choose_joint,
    prune_choose_joint_kinds,
    prune_choose_kinds,
    prune_most,
)
from ._heads.prune_search import PruneCurve, PrunePoint, prune_search
from ._heads.weight_circuits import WeightCircuits, circuit_help, head_weights, weight_circuits_measure
from ._layers.blocks import AttnLayer, Block, HeadChoice, LayerOutput
from ._layers.linear_norm_loss import (
    CrossEntropy,
    Linear,
    LinearGradients,
    Matrix,
    Norm,
    NormGradients,
    activation_backward,
    activation_forward,
    cross_entropy,
    embedding_backward,
    embedding_forward,
    linear_backward,
    norm_backward,
    norm_forward,
)
from ._layers.rope import Rope
from ._layers.variant import Trace, Variant, VariantGradients
from ._layers.variants import (
    AdaptiveHeads,
    CausalAttention,
    GroupedQuery,
    HeadPruning,
    LlamaAttention,
    MoeHeads,
    QkvAttention,
    SelfAttention,
    StackedHeads,
    StandardMha,
    WeightSplit,
)
from ._models.audio import audio_features, audio_parse, audio_read
from ._models.forward import Output
from ._models.generate import sampling_apply
from ._models.grads import Distill, Loss, ModelGrads
from ._models.model import Model, model_save_check
from ._models.model_cache import ModelCache
from ._models.tokenizer import TextStream, Tokenizer, TokenizerTrainer, Tokens, Trained
from ._models.vision import read_image
from ._training.data import TrainData, TrainDataInfo, TrainDigest, train_mask_tokens, train_sequence_order
from ._training.log import TrainLog, TrainRecord
from ._training.store import TrainStore, train
from ._training.trainer import TrainBatch, Trainer, TrainerGates, TrainGates, TrainOptions, TrainReport, train_rate

__all__ = [
    "AdaptiveHeads",
    "Attention",
    "AttnLayer",
    "Block",
    "Cache",
    "CausalAttention",
    "CrossEntropy",
    "Distill",
    "Diversity",
    "Edit",
    "Evaluation",
    "File",
    "Functions",
    "Gradients",
    "GroupedQuery",
    "HeadChoice",
    "HeadData",
    "HeadLayout",
    "HeadLayoutAdvice",
    "HeadLayoutOptions",
    "HeadLayouts",
    "HeadMap",
    "HeadPruning",
    "HeadScores",
    "HeadThresholds",
    "Heads",
    "Importance",
    "Kept",
    "LayerOutput",
    "LayoutModel",
    "LayoutTraining",
    "LayoutTrial",
    "Linear",
    "LinearGradients",
    "LlamaAttention",
    "LogitAttribution",
    "LogitLens",
    "Loss",
    "Matrix",
    "Model",
    "ModelCache",
    "ModelGrads",
    "ModelsComparison",
    "MoeHeads",
    "Norm",
    "NormGradients",
    "Output",
    "Plan",
    "PromptPair",
    "PruneCurve",
    "PrunePoint",
    "QkvAttention",
    "Report",
    "Rng",
    "Rope",
    "SelfAttention",
    "StackedHeads",
    "StandardMha",
    "TensorsWriter",
    "TextStream",
    "Tokenizer",
    "TokenizerTrainer",
    "Tokens",
    "Trace",
    "TrainBatch",
    "TrainData",
    "TrainDataInfo",
    "TrainDigest",
    "TrainGates",
    "TrainLog",
    "TrainOptions",
    "TrainRecord",
    "TrainReport",
    "TrainStore",
    "Trained",
    "Trainer",
    "TrainerGates",
    "Variant",
    "VariantGradients",
    "WeightCircuits",
    "WeightSplit",
    "activation_backward",
    "activation_forward",
    "attention",
    "attention_backward",
    "attention_plan",
    "attn_merge",
    "audio_features",
    "audio_parse",
    "audio_read",
    "circuit_help",
    "cross_entropy",
    "cross_head_number",
    "cross_head_place",
    "diversity_help",
    "diversity_measure",
    "embedding_backward",
    "embedding_forward",
    "file_write",
    "file_write_check",
    "head_layout_advise",
    "head_layout_measure",
    "head_layout_resolve",
    "head_layout_variant_help",
    "head_layout_variants",
    "head_layouts",
    "head_number",
    "head_place",
    "head_rollout",
    "head_weights",
    "heads_measure",
    "heads_of_maps",
    "held_out_distinct",
    "held_out_split",
    "importance_measure",
    "importance_pairs",
    "isa",
    "isa_list",
    "kl_divergence",
    "knockout_logits",
    "label_help",
    "layout_models",
    "layout_train",
    "linear_backward",
    "logit_attribution",
    "logit_lens",
    "machine_peak_fma",
    "machine_peak_read",
    "mean_interval",
    "median",
    "metric_help",
    "model_save_check",
    "models_compare",
    "norm_backward",
    "norm_forward",
    "npy_write",
    "patch_normalized",
    "prompt_noise",
    "prune",
    "prune_choose",
    "prune_choose_joint",
    "prune_choose_joint_kinds",
    "prune_choose_kinds",
    "prune_most",
    "prune_search",
    "read_image",
    "regroup",
    "regroup_method_help",
    "report",
    "sampling_apply",
    "score_help",
    "score_needs_loss",
    "set_isa",
    "set_progress",
    "set_threads",
    "student_quantile",
    "tensors_read",
    "tensors_read_into",
    "tensors_write",
    "threads",
    "train",
    "train_mask_tokens",
    "train_rate",
    "train_sequence_order",
    "version",
    "weight_circuits_measure",
]
__version__ = version
