"""nn.TransformerEncoder in inference, with a padding mask.

On the CPU it packs the sequences into a nested tensor, whose layers see no padding, and fills with zeros when it
unpacks. The device's programs have fixed sizes: here the layers take the padding mask, and the zeros are written
where unpacking would have.
"""

import copy
import functools

import torch
from torch import nn

# torch.jit.script reads the source of the forward() that is wrapped here and looks its names up in this module.
from torch.nn.modules.transformer import F, Tensor, _detect_is_causal_mask, _get_seq_len  # noqa: F401


def install():
    forward = nn.TransformerEncoder.forward

    @functools.wraps(forward)
    def padded_forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        if src_key_padding_mask is None or src.device.type != "tpu" or not _packs(self, src, mask):
            return forward(self, src, mask, src_key_padding_mask, is_causal)
        padding = src_key_padding_mask if src_key_padding_mask.dtype == torch.bool else src_key_padding_mask != 0
        zeros = (~padding).sum(1, keepdim=True) <= torch.arange(src.size(1), device=src.device)
        if getattr(self, "mask_check", True):
            zeros = zeros & (zeros == padding).all()  # masks with padding elsewhere than at the end are not packed
        else:
            src_key_padding_mask = zeros  # only how much padding there is counts
        output = forward(_layers_alone(self), src, None, src_key_padding_mask, is_causal)
        output = output.masked_fill(zeros.unsqueeze(2), 0)
        return output if self.norm is None else self.norm(output)

    nn.TransformerEncoder.forward = padded_forward


def _packs(encoder, src, mask):
    """Whether PyTorch would make a nested tensor of src, as far as that is not the padding mask's matter."""
    first = encoder.layers[0]
    if (
        not torch.backends.mha.get_fastpath_enabled()
        or not getattr(encoder, "use_nested_tensor", False)
        or first.training
        or src.dim() != 3
        or src.is_nested
        or mask is not None
        or torch.is_autocast_enabled()
        or (getattr(encoder, "mask_check", True) and torch.compiler.is_compiling())
    ):
        return False
    modules = (first.self_attn, first.self_attn.out_proj, first.norm1, first.norm2, first.linear1, first.linear2)
    tensors = [src, *(p for module in modules for p in module.parameters(recurse=False))]
    if torch.overrides.has_torch_function(tuple(tensors)):
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


def _layers_alone(encoder):
    """The encoder without its norm, that packs nothing."""
    alone = copy.copy(encoder)
    alone.__dict__["_modules"] = {**encoder._modules, "norm": None}
    alone.use_nested_tensor = False
    return alone
