"""Calls for rules that PyTorch's modules reach by operator, not by function: name -> function of a dtype."""

import extra
import torch

aten, make = torch.ops.aten, extra.make


def longs(*values):
    return torch.tensor(values, device="tpu")


def fake_quantize(dtype):
    x, scale, zero = make(2, 3, dtype=dtype), make(1, dtype=torch.float32), make(1, dtype=torch.int32)
    scales, zeros = make(3, dtype=torch.float32), make(3, dtype=torch.int32)
    real = zero.float()
    extra.attempt_all(
        [
            lambda: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, 0, 255),
            lambda: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, scale, zero, longs(1), 0, 255),
            lambda: aten.fake_quantize_per_channel_affine_cachemask(x, scales, zeros, 1, 0, 255),
            lambda: aten._fake_quantize_learnable_per_tensor_affine(x, scale, real, 0, 255),
            lambda: aten._fake_quantize_learnable_per_tensor_affine_backward(x, x, scale, real, 0, 255),
            lambda: aten._fake_quantize_learnable_per_channel_affine(x, scales, zeros.float(), 1, 0, 255),
            lambda: aten._fake_quantize_learnable_per_channel_affine_backward(x, x, scales, zeros.float(), 1, 0, 255),
            lambda: aten._fused_moving_avg_obs_fq_helper(
                x, longs(1), longs(1), real.clone(), real.clone(), scale.clone(), zero.clone(), 0.01, 0, 255, -1
            ),
        ]
    )


def transformer(dtype):
    x, w, b = make(2, 4, 8, dtype=dtype), make(24, 8, dtype=dtype), make(24, dtype=dtype)
    square, vector = make(8, 8, dtype=dtype), make(8, dtype=dtype)
    mask = torch.zeros(2, 4, dtype=torch.bool, device="tpu")
    layer = (x, 8, 2, w, b, square, vector, True, False, 1e-5, *[vector] * 4, square, vector, square, vector)
    extra.attempt_all(
        [
            lambda: aten._native_multi_head_attention(x, x, x, 8, 2, w, b, square, vector),
            lambda: aten._native_multi_head_attention(x, x, x, 8, 2, w, b, square, vector, mask, True, True, 1),
            lambda: aten._transformer_encoder_layer_fwd(*layer),
            lambda: aten._transformer_encoder_layer_fwd(*layer, mask, 1),
            lambda: aten._transform_bias_rescale_qkv(make(2, 4, 24, dtype=dtype), b, 2),
        ]
    )


def scaled_products(dtype):
    a, b = make(16, 32, dtype=dtype), make(48, 32, dtype=dtype)
    eight = [t.to(torch.float8_e4m3fn) for t in (a, b)]
    one, rows, columns = (make(*s, dtype=torch.float32) for s in ((1,), (16, 1), (1, 48)))
    extra.attempt_all(
        [
            lambda: aten._scaled_mm(eight[0], eight[1].t(), one, one, out_dtype=torch.bfloat16),
            lambda: aten._scaled_mm(eight[0], eight[1].t(), rows, columns, out_dtype=torch.bfloat16),
            lambda: aten._scaled_mm_v2(eight[0], eight[1].t(), [one], [0], [0], [one], [0], [0], None, torch.bfloat16),
            lambda: aten._weight_int8pack_mm(a, b.to(torch.int8), make(48, dtype=dtype)),
        ]
    )


def draws(dtype):
    x = make(3, dtype=dtype)
    extra.attempt_all(
        [
            lambda: torch.poisson(x),
            lambda: torch.binomial(x, x),
            lambda: torch._standard_gamma(x),
            lambda: torch._standard_gamma_grad(x, x),
            lambda: torch._sample_dirichlet(x),
            lambda: torch._dirichlet_grad(x, x, x),
            lambda: aten.bernoulli.out(x, out=x.clone()),
        ]
    )


def running_extremes(dtype):
    x = make(2, 3, dtype=dtype)
    for helper in (torch._cummax_helper, torch._cummin_helper):
        helper(x, x.clone(), torch.zeros(2, 3, dtype=torch.int64, device="tpu"), 1)


def pools_out(dtype):
    x, y = make(1, 2, 4, 4, dtype=dtype), make(1, 2, 4, 4, 4, dtype=dtype)
    extra.attempt_all(
        [
            lambda: aten.adaptive_avg_pool2d.out(x, [2, 2], out=make(1, 2, 2, 2, dtype=dtype)),
            lambda: aten.adaptive_avg_pool3d.out(y, [2, 2, 2], out=make(1, 2, 2, 2, 2, dtype=dtype)),
            lambda: aten.adaptive_avg_pool3d_backward.grad_input(
                make(1, 2, 2, 2, 2, dtype=dtype), y, grad_input=make(1, 2, 4, 4, 4, dtype=dtype)
            ),
        ]
    )


def others(dtype):
    x, pair = make(2, 3, 6, 6, dtype=dtype), make(2, 4, dtype=dtype)
    half = make(2, 2, dtype=dtype)
    square = make(3, 3, dtype=dtype)
    extra.attempt_all(
        [
            lambda: torch._add_relu(half, half),
            lambda: aten._add_relu.Scalar(half, 2),
            lambda: aten._functional_assert_async.msg(longs(1)[0], "why", aten._make_dep_token(device="tpu")),
            lambda: aten._upsample_lanczos2d_aa(x, [3, 3], False),
            lambda: aten._upsample_lanczos2d_aa_backward(make(2, 3, 3, 3, dtype=dtype), [3, 3], [2, 3, 6, 6], False),
            lambda: aten.batch_norm_update_stats(x, make(3, dtype=dtype), make(3, dtype=dtype), 0.1),
            lambda: aten.glu_jvp(half, pair, pair, 1),
            lambda: aten.glu_backward_jvp(pair, half, pair, half, pair, 1),
            lambda: torch.native_channel_shuffle(x, 3),
            lambda: torch.linalg.eigvals(square),
            lambda: aten._linalg_eigvals(square),
            lambda: aten.linalg_eigvals.out(
                square, out=make(3, dtype=torch.complex128 if dtype == torch.float64 else torch.complex64)
            ),
        ]
    )


def jagged(dtype):
    values, dense = make(5, 4, dtype=dtype), make(2, 3, 4, dtype=dtype)
    extra.attempt_all(
        [
            lambda: aten._jagged_to_padded_dense_forward(values, [longs(0, 2, 5)], [3]),
            lambda: aten._padded_dense_to_jagged_forward(dense, [longs(0, 2, 5)], 5),
        ]
    )


extra.cases(
    {
        function.__name__: function
        for function in (
            fake_quantize,
            transformer,
            scaled_products,
            draws,
            running_extremes,
            pools_out,
            others,
            jagged,
        )
    }
)
