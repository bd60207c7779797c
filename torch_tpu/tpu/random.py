"""Random generators of torch.tpu. None of this creates a client."""

import functools

import torch

from torch_tpu import _lib

from ._utils import _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


@functools.cache
def _default_generator(index):
    return torch.ops.torchtpu.default_generator(index)


def _default_generators():
    return tuple(_default_generator(index) for index in range(_lib.runtime().tt_device_count()))


def _get_generator(device):
    index = _get_device_index(device, optional=True)
    count = _lib.runtime().tt_device_count()
    if not 0 <= index < count:
        raise RuntimeError(f"invalid device tpu:{index}: there are {count} devices")
    return _default_generator(index)


def get_rng_state(device="tpu"):
    """The state of the device's default generator: a ByteTensor of the seed and the offset."""
    return _get_generator(device).get_state()


def get_rng_state_all():
    return [generator.get_state() for generator in _default_generators()]


def set_rng_state(new_state, device="tpu"):
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _get_rng_state_offset(device="tpu"):
    return _get_generator(device).get_offset()


def _set_rng_state_offset(offset, device="tpu"):
    _get_generator(device).set_offset(offset)


def manual_seed(seed):
    """Seeds the current device's default generator."""
    _get_generator(None).manual_seed(int(seed))


def manual_seed_all(seed):
    """Seeds every device's default generator. `torch.manual_seed` calls it."""
    for generator in _default_generators():
        generator.manual_seed(int(seed))


def seed():
    """Seeds the current device's default generator with a random number."""
    _get_generator(None).seed()


def seed_all():
    """Seeds every device's default generator with one random number."""
    generators = _default_generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed():
    """The seed of the current device's default generator."""
    return _get_generator(None).initial_seed()
