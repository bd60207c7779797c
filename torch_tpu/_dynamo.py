"""The backend "tpu" of torch.compile. PyTorch imports this when the backend is first asked for."""


def tpu(graph, example_inputs, **kwargs):
    """Traces forward and backward with AOTAutograd, and runs the operators of the graphs on the device one by one."""
    from torch._dynamo.backends.debugging import aot_eager

    unknown = set(kwargs) - {"mode", "options"}
    if unknown:
        raise TypeError(f'backend "tpu" has no option {", ".join(sorted(unknown))}')
    return aot_eager(graph, example_inputs)
