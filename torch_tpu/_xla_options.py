"""XLA options that a user sets for the programs of one compiled graph or step."""

import functools

import torch


class XlaOptions:
    """Options by name, as texts in order of their names."""

    def __init__(self, names=(), values=()):
        self.names, self.values = names, values

    def create_graph(self, name):
        graph = torch.ops.torchtpu.create_graph(name)
        if self.names:
            torch.ops.torchtpu.set_graph_options(graph, self.names, self.values)
        return graph

    def blames(self, error):
        """Whether an error speaks of one of them."""
        return any(name in str(error) for name in self.names)


def read(options, whose):
    """Checks the options, and then asks the plugin, which says what it doesn't know."""
    if not options:
        return XlaOptions()
    unknown = [name for name in options if not isinstance(name, str) or not name.startswith("xla_")]
    if unknown:
        raise ValueError(
            f"{whose} has no option {', '.join(map(repr, unknown))}: what it takes are XLA's options, whose names "
            'begin with "xla_", with a bool, int, float or str each'
        )
    names = sorted(options)
    values = [_text(name, options[name]) for name in names]
    _check(tuple(names), tuple(values))
    return XlaOptions(names, values)


def _text(name, value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if not isinstance(value, str):
        raise TypeError(f"the option {name!r} must be a bool, int, float or str, not {type(value).__name__}")
    return value


@functools.cache
def _check(names, values):
    for text in (*names, *values):
        if "\0" in text:
            raise ValueError(f"a zero byte in an option: {text!r}")
    torch.ops.torchtpu.check_options(names, values)
