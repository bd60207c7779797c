"""Changes to modules of PyTorch that import torch does not load: made when they are imported."""

import importlib.util
import sys


def when_imported(name, change):
    """Calls change(module) once the module has run, or at once if it has."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        sys.meta_path.insert(0, _Finder(name, change))


class _Finder:
    """Lets the other finders find the module, whose loader changes it at the end."""

    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self.change(module)

        spec.loader.exec_module = exec_module
        return spec
