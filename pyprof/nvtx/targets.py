"""What is patched: one line a namespace, one line an op that is told under another name. Data only; no torch here.

Only functions written in C are replaced (and the few Python methods listed in `PYTHON`, which call C past the names that are
patched). Functions written in Python, such as torch.nn.functional.relu, keep their identity, on which much of torch relies;
their work is seen in the C functions that they call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["COLLECTIVES", "NAMESPACES", "PYTHON", "RENAMED", "Namespace"]


@dataclass(frozen=True, slots=True)
class Namespace:
    """C functions reached through one object.

    where: the object whose attributes are replaced; told: the module that users know them by; ops: which attribute names are
    ops; but: which of those are not.
    """

    where: str
    told: str
    ops: str = r"[a-z]\w*"
    but: str = ""

    def has(self, name: str) -> bool:
        """Whether the attribute of that name is an op."""
        return bool(re.fullmatch(self.ops, name)) and not (self.but and re.fullmatch(self.but, name))


_PRIVATE_OPS = (
    r"_foreach_\w+|_fused_(adam|adamw|sgd|adagrad|rms_norm)_?|_amp_\w+|_scaled_\w*mm\w*|_scaled_dot_product_\w+|_grouped_mm|_int_mm"
    r"|_weight_\w*mm\w*|_addmm_activation|_safe_softmax|_masked_softmax|_native_multi_head_attention|_transformer_encoder_layer_fwd"
    r"|_transform_bias_rescale_qkv|_convolution|_embedding_bag|_unique2?|_sparse_semi_structured_\w*mm|_cslt_sparse_mm"
    r"|_mixed_dtypes_linear|_dyn_quant_matmul_4bit|_weight_norm|_euclidean_dist|_trilinear|_chunk_cat|_lu_with_info"
    r"|_pack_padded_sequence|_pad_packed_sequence|_standard_gamma|_sample_dirichlet|_dirichlet_grad|_fake_quantize_\w+"
    r"|_fused_moving_avg_obs_fq_helper|_histogramdd_\w+|_segment_reduce|_softmax|_log_softmax"
)

_TORCH_QUERIES = (
    r"(get|set|is|has|init|parse|import|unify|merge|q)_\w+|autocast_\w+|can_cast|promote_types|result_type|clear_autocast_cache|numel"
    r"|fork|wait|from_file|from_numpy|to_dlpack|sym_constrain\w+|cudnn_is_acceptable|align_\w+|int_repr|choose_qparams_optimized"
)

_TENSOR_QUERIES = (
    r"(is|q|has|get|sparse)_(?!softmax|sum)\w+|size|stride|dim|ndimension|numel|nelement|element_size|storage_offset|data_ptr|untyped_storage"
    r"|type|requires_grad_|retain_grad|dense_dim|sym_\w+|__\w+__|names|rename_?|align_\w+|refine_names|has_names|apply_|map_|map2_"
    r"|new|record_stream|set_|new_tensor|swapaxes_?|data|grad|int_repr|numpy|tolist"
)

_TENSOR_OPERATORS = (
    r"__(r?(add|sub|mul|div|truediv|mod|and|or|xor|lshift|rshift|matmul)|i(add|sub|mul|div|truediv|floordiv|mod|and|or|xor|lshift|rshift)"
    r"|eq|ne|lt|le|gt|ge|neg|pos|abs|invert|getitem|setitem)__"
)

# Where one C function is reachable by several names, the first line that has it decides what it is told as.
NAMESPACES: tuple[Namespace, ...] = (
    Namespace("torch.nn.functional", "torch.nn.functional", but=r"has_torch_function\w*"),
    Namespace(
        "torch._C._nn", "torch.nn.functional", r"[a-z]\w*|_upsample_\w+|_pad_\w+|_conv_depthwise2d", r"nested_\w+|pad_sequence"
    ),
    Namespace("torch.linalg", "torch.linalg"),
    Namespace("torch.fft", "torch.fft"),
    Namespace("torch.special", "torch.special"),
    Namespace("torch.sparse", "torch.sparse"),
    Namespace("torch", "torch", rf"[a-z]\w*|{_PRIVATE_OPS}", _TORCH_QUERIES),
    Namespace("torch.Tensor", "Tensor", r"[a-z]\w*", _TENSOR_QUERIES),
    Namespace("torch.Tensor", "Tensor", _TENSOR_OPERATORS),
    # Where torch's own C++ looks up what it hands to a `__torch_function__`, and Python functions of torch (torch.einsum,
    # nn.LSTM) the C functions that they call.
    Namespace("torch._C._VariableFunctionsClass", "torch", rf"[a-z]\w*|{_PRIVATE_OPS}", _TORCH_QUERIES),
    Namespace("torch._C._linalg", "torch.linalg", r"linalg_[a-z]\w*"),
    Namespace("torch._C._fft", "torch.fft", r"fft_[a-z]\w*"),
    Namespace("torch._C._special", "torch.special", r"special_[a-z]\w*"),
    Namespace("torch._C._sparse", "torch.sparse", r"_?sparse_\w+|_spdiags|_spsolve"),
)

# Methods written in Python that call the C function by a reference of their own: nothing below them is seen otherwise.
PYTHON: tuple[tuple[str, str, str], ...] = (
    ("torch.Tensor", "__pow__", "Tensor"),
    ("torch.Tensor", "__ipow__", "Tensor"),
)

# Methods of torch.distributed's ProcessGroup in C++ -> the function of torch.distributed that calls them, and what each
# positional argument is called there (as in RENAMED; the group comes first and is not told, nor are the options). The functions
# themselves are written in Python and stay as they are.
COLLECTIVES: dict[str, tuple[str, str]] = {
    "allreduce": ("all_reduce", "-, "),
    "allreduce_coalesced": ("all_reduce_coalesced", "-, "),
    "broadcast": ("broadcast", "-, "),
    "reduce": ("reduce", "-, "),
    "allgather": ("all_gather", "-, , "),
    "allgather_coalesced": ("all_gather", "-, , "),
    "_allgather_base": ("all_gather_into_tensor", "-, , "),
    "all_gather_single": ("all_gather_into_tensor", "-, , "),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor", "-, , "),
    "all_gather_single_coalesced": ("all_gather_into_tensor", "-, , "),
    "reduce_scatter": ("reduce_scatter", "-, , "),
    "_reduce_scatter_base": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_single": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor", "-, , "),
    "alltoall": ("all_to_all", "-, , "),
    "alltoall_base": ("all_to_all_single", "-, , , output_split_sizes, input_split_sizes"),
    "all_to_all_single": ("all_to_all_single", "-, , , output_split_sizes, input_split_sizes"),
    "gather": ("gather", "-, , "),
    "scatter": ("scatter", "-, , "),
    "send": ("send", "-, , dst, tag"),
    "recv": ("recv", "-, , src, tag"),
    "recv_anysource": ("recv", "-, "),
    "barrier": ("barrier", "-"),
    "monitored_barrier": ("monitored_barrier", "-"),
}

# (told module of the C function, its name) -> the function that users call, and what each positional argument is called there:
# nothing where it has the same place, `-` where that function has no such argument.
RENAMED: dict[tuple[str, str], tuple[str, str, str]] = {
    ("torch.nn.functional", "cross_entropy_loss"): (
        "torch.nn.functional",
        "cross_entropy",
        ", , weight, reduction, ignore_index, label_smoothing",
    ),
    ("torch.nn.functional", "nll_loss_nd"): ("torch.nn.functional", "nll_loss", ", , weight, reduction, ignore_index"),
    ("torch.nn.functional", "l1_loss"): ("torch.nn.functional", "l1_loss", ", , reduction"),
    ("torch.nn.functional", "mse_loss"): ("torch.nn.functional", "mse_loss", ", , reduction"),
    ("torch.nn.functional", "smooth_l1_loss"): ("torch.nn.functional", "smooth_l1_loss", ", , reduction, beta"),
    ("torch.nn.functional", "huber_loss"): ("torch.nn.functional", "huber_loss", ", , reduction, delta"),
    ("torch.nn.functional", "soft_margin_loss"): ("torch.nn.functional", "soft_margin_loss", ", , reduction"),
    ("torch.nn.functional", "binary_cross_entropy"): (
        "torch.nn.functional",
        "binary_cross_entropy",
        ", , weight, reduction",
    ),
    ("torch", "binary_cross_entropy_with_logits"): (
        "torch.nn.functional",
        "binary_cross_entropy_with_logits",
        ", , weight, pos_weight, reduction",
    ),
    ("torch", "kl_div"): ("torch.nn.functional", "kl_div", ", , reduction"),
    ("torch", "ctc_loss"): ("torch.nn.functional", "ctc_loss", ", , , , , reduction, zero_infinity"),
    ("torch", "layer_norm"): ("torch.nn.functional", "layer_norm", ", , , , , -"),
    ("torch", "group_norm"): ("torch.nn.functional", "group_norm", ", , , , , -"),
    ("torch", "rms_norm"): ("torch.nn.functional", "rms_norm", ""),
    ("torch", "batch_norm"): (
        "torch.nn.functional",
        "batch_norm",
        ", weight, bias, running_mean, running_var, training, momentum, eps, -",
    ),
    ("torch", "instance_norm"): (
        "torch.nn.functional",
        "instance_norm",
        ", weight, bias, running_mean, running_var, use_input_stats, momentum, eps, -",
    ),
    ("torch", "embedding"): ("torch.nn.functional", "embedding", "weight, input, padding_idx, scale_grad_by_freq, sparse"),
    ("torch", "dropout"): ("torch.nn.functional", "dropout", ""),
    ("torch", "dropout_"): ("torch.nn.functional", "dropout", ""),
    ("torch", "max_pool1d"): ("torch.nn.functional", "max_pool1d", ""),
    ("torch", "max_pool2d"): ("torch.nn.functional", "max_pool2d", ""),
    ("torch", "max_pool3d"): ("torch.nn.functional", "max_pool3d", ""),
}
