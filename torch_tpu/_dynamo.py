"""The backend "tpu" of torch.compile, registered with Dynamo when that is imported."""

from torch_tpu._imports import when_imported


def tpu(graph, example_inputs, *, mode=None, options=None, **kwargs):
    """Compiles a graph with tensors on tpu to one program; any other goes to Inductor.

    `torch.compile(..., options={"xla_...": value})` compiles that function's programs with these XLA options: bool,
    int, float or str, in the plugin's own terms. They win over TORCH_TPU_XLA_OPTIONS and what is set by default. What
    the plugin doesn't know is refused at the first call. Operators that run outside of a program do without them, and
    Inductor gets the options whose names don't begin with "xla_".
    """
    if kwargs:
        raise TypeError(f'backend "tpu" has no option {", ".join(sorted(kwargs))}')
    from torch_tpu import _compile

    return _compile.compile_graph(graph, example_inputs, mode, options)


def install():
    when_imported("torch._dynamo.backends.registry", _register)
    # torch.tpu's functions speak to the C library: they run, and are not traced.
    when_imported("torch._dynamo.trace_rules", lambda rules: rules.add("torch_tpu.tpu"))
    when_imported("torch._dynamo.variables.builder", _allow_recurrent)


def _allow_recurrent(builder):
    """Dynamo breaks its graph at nn.LSTM, GRU and RNN unless told otherwise; on tpu they are operators like others."""
    wrap = getattr(builder.VariableBuilder, "wrap_module", None)
    if wrap is None:
        return

    def wrap_module(self, value, *args, **kwargs):
        import torch

        if isinstance(value, torch.nn.RNNBase) and any(p.device.type == "tpu" for p in value.parameters()):
            with torch._dynamo.config.patch(allow_rnn=True):
                return wrap(self, value, *args, **kwargs)
        return wrap(self, value, *args, **kwargs)

    builder.VariableBuilder.wrap_module = wrap_module


def _register(registry):
    from torch._functorch._aot_autograd import utils

    if hasattr(utils, "register_graphsafe_rng_device_type"):
        utils.register_graphsafe_rng_device_type("tpu")  # checkpointing with dropout
    if "tpu" not in registry._COMPILER_FNS:
        registry.register_backend(tpu, name="tpu")
    # Where PyTorch has it, torch.compile(model) alone comes here too.
    if getattr(registry, "_default_backend", None) == "inductor" and hasattr(registry, "set_default_backend"):
        registry.set_default_backend("tpu")
