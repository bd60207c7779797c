"""Attention of jagged nested tensors.

The CPU makes nested tensors of layout strided of them, of which the device has none. Here they are padded to the
longest sequence, attended with a mask, and made jagged again.
"""

import functools

import torch
from torch.nn import functional as F

from torch_tpu._imports import when_imported


def install():
    when_imported("torch.nested._internal.sdpa", _install_attention)


def _install_attention(module):
    attention = module.jagged_scaled_dot_product_attention

    @functools.wraps(attention)
    def jagged_scaled_dot_product_attention(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        operands = query, key, value
        if _padded_fits(operands):
            query, key, value, attn_mask = module._autocast(query, key, value, attn_mask)
            module._validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
            return _padded_attention(query, key, value, dropout_p, is_causal, scale, enable_gqa)
        return attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    module.jagged_scaled_dot_product_attention = jagged_scaled_dot_product_attention


def _padded_fits(operands):
    """[batch, heads, ragged, size] on the device, with PyTorch's plain form of attention allowed."""
    return (
        all(x.is_nested and x.layout == torch.jagged and x.device.type == "tpu" for x in operands)
        and all(x.dim() == 4 and x._ragged_idx == 2 for x in operands)
        and torch.backends.cuda.math_sdp_enabled()
    )


def _padded_attention(query, key, value, dropout_p, is_causal, scale, enable_gqa):
    from torch.nested._internal.nested_tensor import nested_from_padded

    if any(x.lengths() is not None for x in (query, key, value)):
        raise NotImplementedError(
            "attention of jagged tensors with gaps between the sequences: make them contiguous() first"
        )
    if not query.size(0) == key.size(0) == value.size(0):
        raise RuntimeError(f"batches of {query.size(0)}, {key.size(0)} and {value.size(0)} sequences don't fit")
    padded = [x.transpose(1, 2).to_padded_tensor(0.0).transpose(1, 2) for x in (query, key, value)]
    if padded[1].size(2) != padded[2].size(2):
        raise RuntimeError("key and value don't have sequences of the same lengths")
    places = [torch.arange(x.size(2), device=x.device) for x in padded[:2]]
    allowed = (places[1] < key.offsets().diff()[:, None])[:, None, None]
    if is_causal:
        allowed = allowed & (places[0][:, None] >= places[1])
    out = F.scaled_dot_product_attention(*padded, allowed, dropout_p, scale=scale, enable_gqa=enable_gqa)
    return nested_from_padded(
        out.transpose(1, 2),
        query.offsets(),
        ragged_idx=1,
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._maybe_max_seqlen,
        sum_S=query._values.size(1),
    ).transpose(1, 2)
