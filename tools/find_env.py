"""Prints, for CMake, where the building Python keeps what the build needs.

One `name=value` line each; a value is empty where the package is not installed. Packages are located, not imported:
importing torch would take seconds and would autoload the backend that is being built.
"""

import importlib.util
import re
from pathlib import Path


def package_dir(name):
    spec = importlib.util.find_spec(name)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def namespace_file(name, relative):
    """The first file `relative` in any part of a namespace package."""
    spec = importlib.util.find_spec(name)
    for part in (spec.submodule_search_locations or []) if spec else []:
        if (Path(part) / relative).exists():
            return Path(part) / relative
    return ""


def main():
    torch = package_dir("torch")
    version = ""
    if torch and (torch / "version.py").exists():
        match = re.search(r"__version__\s*(?::\s*str)?\s*=\s*['\"]([^'\"]+)", (torch / "version.py").read_text())
        version = match.group(1) if match else ""
    print(f"torch={torch or ''}")
    print(f"torch_version={version}")

    header = namespace_file("xla_plugins", "xla_cpu_pjrt/include/pjrt_c_api.h")
    print(f"pjrt_include={header.parent if header else ''}")

    plugin = package_dir("fastatomstruct_xla_cpu")
    plugin = plugin / "libpjrt_cpu.so" if plugin else None
    print(f"xla_plugin={plugin if plugin and plugin.exists() else ''}")


if __name__ == "__main__":
    main()
