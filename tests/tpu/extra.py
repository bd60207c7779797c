"""Calls for the rules that PyTorch's OpInfo database does not reach: name -> function of a dtype.

A case that raises ends there; each makes several calls, so put what may be refused into a case of its own.
"""

import torch
from torch import nn

DTYPES = ("float32", "bfloat16", "int32", "int64", "bool", "complex64", "float64")
CASES = {}
aten = torch.ops.aten


def case(function):
    CASES[function.__name__] = function
    return function


def cases(table):
    """Each entry by itself: name -> function of a dtype."""
    CASES.update(table)


def make(*sizes, dtype):
    """A tensor of nothing in particular; sizes as PyTorch users have them."""
    return torch.zeros(sizes, device="tpu").to(dtype)


def lists(dtype, count=1):
    """As many lists of tensors."""
    return [[make(3, dtype=dtype), make(2, 3, dtype=dtype)] for _ in range(count)]


def attempt_all(calls):
    """Makes every call; the first error is raised at the end."""
    first = None
    for call in calls:
        try:
            call()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


# --- Lists of tensors -------------------------------------------------------------------------------------------------
def foreach_forms(name):
    """The overloads of an operator on lists, as (overload, arguments of a dtype)."""
    packet = getattr(aten, name)
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        if not any(argument.is_out for argument in schema.arguments):
            yield getattr(packet, overload), schema


def foreach_arguments(schema, dtype):
    """Arguments that fit the types of a schema."""
    for argument in schema.arguments:
        if argument.kwarg_only or argument.has_default_value():
            continue
        kind = str(argument.type)
        if kind == "List[Tensor]":
            yield lists(dtype)[0]
        elif kind == "Tensor":
            yield make(dtype=dtype) if argument.name != "scalars" else torch.ones(2)
        elif kind == "List[number]":
            yield [2, 3]
        else:
            yield 2 if kind in ("int", "number") else 0.5


def foreach_case(name):
    def run(dtype):
        attempt_all(
            lambda overload=overload, schema=schema: overload(*foreach_arguments(schema, dtype))
            for overload, schema in foreach_forms(name)
        )

    return run


cases({name: foreach_case(name) for name in dir(torch._C._VariableFunctions) if name.startswith("_foreach_")})


def optimizer_case(kind, **options):
    def run(dtype):
        model = nn.Linear(3, 2, device="tpu", dtype=dtype)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for more in ({}, {"lr": torch.tensor(0.1, device="tpu")}):
            kind(model.parameters(), fused=True, **options, **more).step()

    return run


cases(
    {
        "fused_adam": optimizer_case(torch.optim.Adam),
        "fused_amsgrad": optimizer_case(torch.optim.Adam, amsgrad=True, weight_decay=0.1),
        "fused_adamw": optimizer_case(torch.optim.AdamW),
        "fused_sgd": optimizer_case(torch.optim.SGD),
        "fused_momentum": optimizer_case(torch.optim.SGD, momentum=0.9, nesterov=True),
        "fused_adagrad": optimizer_case(torch.optim.Adagrad),
    }
)


@case
def fused_tensor_lr(dtype):
    rate = torch.tensor(0.1, device="tpu")
    p, g, m, v, s = lists(dtype, 5)
    steps = [torch.ones((), device="tpu") for _ in p]
    options = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False}
    attempt_all(
        [
            lambda: aten._fused_adam_.tensor_lr(p, g, m, v, s, steps, lr=rate, **options),
            lambda: aten._fused_adamw_.tensor_lr(p, g, m, v, s, steps, lr=rate, **options),
            lambda: aten._fused_sgd_.tensor_lr(
                p,
                g,
                m,
                weight_decay=0.1,
                momentum=0.9,
                lr=rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            ),
            lambda: aten._fused_adagrad_.tensor_lr(
                p, g, m, steps, lr=rate, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False
            ),
        ]
    )


@case
def amp(dtype):
    found, scale, tracker = (
        torch.zeros(1, device="tpu"),
        torch.ones(1, device="tpu"),
        torch.zeros(1, device="tpu").int(),
    )
    aten._amp_foreach_non_finite_check_and_unscale_(lists(dtype)[0], found, scale)
    aten._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 3)


# --- Layers -----------------------------------------------------------------------------------------------------------
def layer_case(build, *sizes):
    def run(dtype):
        layer = build().to("tpu").to(dtype)
        x = make(*sizes, dtype=dtype).requires_grad_()
        result = layer(x)
        result = result[0] if isinstance(result, tuple) else result
        result.backward(torch.ones_like(result))
        layer.eval()(x)

    return run


cases(
    {
        "conv1d": layer_case(lambda: nn.Conv1d(4, 6, 3, padding=1), 2, 4, 9),
        "conv2d": layer_case(lambda: nn.Conv2d(4, 6, 3, stride=2, dilation=2, groups=2), 2, 4, 9, 11),
        "conv3d": layer_case(lambda: nn.Conv3d(4, 6, 3), 2, 4, 5, 6, 7),
        "conv_transpose2d": layer_case(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), 2, 4, 5, 6),
        "depthwise": layer_case(lambda: nn.Conv2d(4, 4, 3, groups=4), 2, 4, 9, 9),
        "lstm": layer_case(lambda: nn.LSTM(4, 5, 2, bidirectional=True), 3, 2, 4),
        "gru": layer_case(lambda: nn.GRU(4, 5), 3, 2, 4),
        "rnn": layer_case(lambda: nn.RNN(4, 5), 3, 2, 4),
        "batch_norm": layer_case(lambda: nn.BatchNorm2d(4), 2, 4, 5, 5),
        "sync_batch_norm": layer_case(lambda: nn.SyncBatchNorm(4), 2, 4, 5, 5),
        "weight_norm": layer_case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), 2, 4),
        "reflection_pad3d": layer_case(lambda: nn.ReflectionPad3d(1), 1, 2, 4, 4, 4),
        "replication_pad3d": layer_case(lambda: nn.ReplicationPad3d(1), 1, 2, 4, 4, 4),
        "attention": layer_case(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, 5, 8),
    }
)


def lstm_cell(dtype):
    gates = [make(2, 20, dtype=dtype).requires_grad_() for _ in range(2)]
    return aten._thnn_fused_lstm_cell(*gates, make(2, 5, dtype=dtype), make(20, dtype=dtype), make(20, dtype=dtype))


def gru_cell(dtype):
    gates = [make(2, 15, dtype=dtype).requires_grad_() for _ in range(2)]
    h = make(2, 5, dtype=dtype)
    out, workspace = aten._thnn_fused_gru_cell(*gates, h, make(15, dtype=dtype), make(15, dtype=dtype))
    aten._thnn_fused_gru_cell_backward(torch.ones_like(out), workspace, True)


def lstm_cell_backward(dtype):
    h, c = make(2, 5, dtype=dtype), make(2, 5, dtype=dtype)
    aten._thnn_fused_lstm_cell_backward_impl(h, c, c, c, make(2, 20, dtype=dtype), True)


def norms(dtype):
    x, w = make(2, 4, 5, dtype=dtype), make(4, dtype=dtype)
    mean, variance = make(4, dtype=dtype), make(4, dtype=dtype)
    attempt_all(
        [
            lambda: aten._native_batch_norm_legit_no_training(x, w, w, mean, variance, 0.1, 1e-5),
            lambda: aten._native_batch_norm_legit_functional(x, w, w, mean, variance, True, 0.1, 1e-5),
            lambda: aten._batch_norm_with_update_functional(x, w, w, mean, variance, 0.1, 1e-5),
            lambda: aten._batch_norm_no_update(x, w, w, mean, variance, 0.1, 1e-5),
        ]
    )


def weight_norm_interface(dtype):
    v, g = make(3, 4, dtype=dtype), make(3, 1, dtype=dtype)
    out, norm = aten._weight_norm_interface(v, g)
    aten._weight_norm_interface_backward(out, v, g, norm, 0)


def embedding_bag(dtype):
    weight = make(7, 3, dtype=dtype).requires_grad_()
    indices, offsets = torch.zeros(4, dtype=torch.int64, device="tpu"), torch.tensor([0, 2], device="tpu")
    attempt_all(
        lambda mode=mode: torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode).sum().backward()
        for mode in ("sum", "mean", "max")
    )


def embedding_bag_forward_only(dtype):
    indices, offsets = torch.zeros(4, dtype=torch.int64, device="tpu"), torch.tensor([0, 2], device="tpu")
    aten._embedding_bag_forward_only(make(7, 3, dtype=dtype), indices, offsets)


def embedding_bag_dense_backward(dtype):
    indices, offsets = torch.zeros(4, dtype=torch.int64, device="tpu"), torch.tensor([0, 2], device="tpu")
    weight = make(7, 3, dtype=dtype)
    out, bags, sizes, maximum = aten._embedding_bag(weight, indices, offsets)
    aten._embedding_bag_dense_backward(out, indices, bags, sizes, maximum, 7, False, 0, None)


def upsample_aa(dtype):
    x = make(1, 2, 5, 6, dtype=dtype).requires_grad_()
    aten._upsample_bicubic2d_aa(x, [3, 4], False).sum().backward()


def masked_softmax_backward(dtype):
    x, mask = make(2, 3, 4, 4, dtype=dtype), torch.zeros(2, 3, 4, 4, dtype=torch.bool, device="tpu")
    aten._masked_softmax_backward(x, x, mask, -1)


def convolution(dtype):
    x, w, b = make(2, 4, 9, dtype=dtype), make(6, 4, 3, dtype=dtype), make(6, dtype=dtype)
    options = ([1], [1], [1], False, [0], 1)
    y = aten.convolution_overrideable(x, w, b, *options)
    aten.convolution_backward_overrideable(y, x, w, *options, [True, True, True])


def masked_softmax(dtype):
    x, mask = make(2, 3, 4, 4, dtype=dtype).requires_grad_(), torch.zeros(4, 4, dtype=torch.bool, device="tpu")
    aten._masked_softmax(x, mask, -1, 0).sum().backward()


cases(
    {
        f.__name__: f
        for f in (
            lstm_cell,
            gru_cell,
            lstm_cell_backward,
            norms,
            weight_norm_interface,
            embedding_bag,
            embedding_bag_forward_only,
            embedding_bag_dense_backward,
            upsample_aa,
            masked_softmax,
            masked_softmax_backward,
            convolution,
        )
    }
)


# --- Products and arithmetic ------------------------------------------------------------------------------------------
def random_out(dtype):
    torch.normal(0.5, make(3, dtype=dtype) + 1)


cases(
    {
        "mm_dtype": lambda d: torch.mm(make(2, 3, dtype=d), make(3, 2, dtype=d), out_dtype=torch.float32),
        "bmm_dtype": lambda d: torch.bmm(make(2, 2, 3, dtype=d), make(2, 3, 2, dtype=d), out_dtype=torch.float32),
        "addmm_dtype": lambda d: torch.addmm(
            make(2, dtype=torch.float32), make(2, 3, dtype=d), make(3, 2, dtype=d), out_dtype=torch.float32
        ),
        "baddbmm_dtype": lambda d: torch.baddbmm(
            make(2, dtype=torch.float32), make(2, 2, 3, dtype=d), make(2, 3, 2, dtype=d), out_dtype=torch.float32
        ),
        "addmm_activation": lambda d: aten._addmm_activation(
            make(2, dtype=d), make(2, 3, dtype=d), make(3, 2, dtype=d)
        ),
        "int_mm": lambda d: torch._int_mm(make(32, 16, dtype=torch.int8), make(16, 8, dtype=torch.int8)),
        "div_scalar_mode": lambda d: aten.div.Scalar_mode(make(3, dtype=d), 2, rounding_mode="floor"),
        "floor_divide_scalar": lambda d: aten.floor_divide.Scalar(make(3, dtype=d), 2),
        "remainder_scalar_tensor": lambda d: aten.remainder.Scalar_Tensor(5, make(3, dtype=d)),
        "fmod_scalar": lambda d: aten.fmod.Scalar(make(3, dtype=d), 2),
        "copysign_scalar": lambda d: aten.copysign.Scalar(make(3, dtype=d), 2),
        "xlogy_out": lambda d: torch.xlogy(make(3, dtype=d), make(3, dtype=d), out=make(3, dtype=d)),
        "clamp_max": lambda d: aten.clamp_max(make(3, dtype=d), 2),
        "conj_physical_out": lambda d: torch.conj_physical(make(3, dtype=d), out=make(3, dtype=d)),
        "lshift": lambda d: attempt_all([lambda: make(3, dtype=d) << 2, lambda: make(3, dtype=d) << make(3, dtype=d)]),
        "rshift": lambda d: attempt_all([lambda: make(3, dtype=d) >> 2, lambda: make(3, dtype=d) >> make(3, dtype=d)]),
        "ilshift": lambda d: attempt_all(
            [
                lambda: aten.__ilshift__.Scalar(make(3, dtype=d), 2),
                lambda: aten.__ilshift__.Tensor(make(3, dtype=d), make(3, dtype=d)),
            ]
        ),
        "irshift": lambda d: attempt_all(
            [
                lambda: aten.__irshift__.Scalar(make(3, dtype=d), 2),
                lambda: aten.__irshift__.Tensor(make(3, dtype=d), make(3, dtype=d)),
            ]
        ),
        "logcumsumexp": lambda d: aten._logcumsumexp(make(3, 4, dtype=d), 1),
        "aminmax": lambda d: attempt_all(
            [lambda: aten._aminmax(make(3, 4, dtype=d)), lambda: aten._aminmax.dim(make(3, 4, dtype=d), 1)]
        ),
        "norm_dtype": lambda d: attempt_all(
            [
                lambda: aten.norm.ScalarOpt_dtype(make(3, 4, dtype=d), 2, dtype=d),
                lambda: aten.norm.ScalarOpt_dim_dtype(make(3, 4, dtype=d), 2, [1], False, dtype=d),
            ]
        ),
        "euclidean_dist": lambda d: aten._euclidean_dist(make(3, 4, dtype=d), make(5, 4, dtype=d)),
    }
)


# --- The rest ---------------------------------------------------------------------------------------------------------
def resized(dtype):
    x = make(2, 3, dtype=dtype)
    x.untyped_storage().resize_(4 * x.untyped_storage().nbytes())
    x.cpu()


def moved(dtype):
    """Reading what is not laid out as it is read."""
    x = make(4, 6, dtype=dtype)
    for view in (x.t(), x[:, 1:3], x[::2], x.flip(0), x.as_strided((3, 2), (1, 1)), x[None].expand(2, 4, 6)):
        view.cpu()


def eight_bits(dtype):
    """Numbers of 8 bits: stored, converted, compared, moved."""
    attempt_all(
        lambda kind=kind: (make(3, 4, dtype=dtype).to(kind).t().contiguous().to(dtype), make(4, dtype=kind).fill_(1))
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2)
    )


def narrow_integers(dtype):
    for kind in (torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64):
        x = make(3, 4, dtype=dtype).to(kind)
        attempt_all(
            [
                lambda x=x: (x + x).to(dtype),
                lambda x=x: x * 2,
                lambda x=x: x.sum(),
                lambda x=x: x.sort(),
                lambda x=x: x < 3,
            ]
        )


def random_integers(dtype):
    attempt_all([lambda: make(5, dtype=dtype).random_(), lambda: make(5, dtype=dtype).random_(7)])


cases(
    {
        "fill_tensor": lambda d: make(3, dtype=d).fill_(make(dtype=d)),
        "range": lambda d: torch.range(0, 5, dtype=d, device="tpu"),
        "eye": lambda d: aten.eye.out(3, out=make(3, 3, dtype=d)),
        "embedding_renorm": lambda d: aten.embedding_renorm_(
            make(5, 3, dtype=d), torch.tensor([1, 2], device="tpu"), 1.0, 2.0
        ),
        "assert_async": lambda d: attempt_all(
            [lambda: torch._assert_async(make(dtype=d)), lambda: torch._assert_async(make(dtype=d), "why")]
        ),
        "normal_tensor": random_out,
        "bernoulli_tensor": lambda d: make(3, dtype=d).bernoulli_(torch.zeros(3, device="tpu")),
        "random_integers": random_integers,
        "randperm": lambda d: torch.randperm(9, device="tpu", generator=torch.Generator("tpu")),
        "scatter_value_reduce": lambda d: attempt_all(
            lambda how=how: make(4, dtype=d).scatter_(0, torch.tensor([1, 2], device="tpu"), 2, reduce=how)
            for how in ("add", "multiply")
        ),
        "bucketize_scalar": lambda d: torch.bucketize(2, make(4, dtype=d)),
        "isin_scalar": lambda d: attempt_all(
            [lambda: torch.isin(make(4, dtype=d), 2), lambda: torch.isin(2, make(4, dtype=d))]
        ),
        "resized": resized,
        "eight_bits": eight_bits,
        "narrow_integers": narrow_integers,
        "moved": moved,
    }
)
