# SPDX-License-Identifier: Apache-2.0
"""Tells torch.distributed of the backend "rondo".

torch loads this module when a program first names the backend. An exception while it is loaded
would hide its cause, so the module imports nothing; register() does.
"""


def register() -> None:
    """Registers the backend. Raises ImportError if it was built for another version of torch."""
    import torch

    from rondo import _built_for

    have = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if have != _built_for.TORCH:
        raise ImportError(
            f"rondo.torch was built for torch {_built_for.TORCH}, and this is torch "
            f"{torch.__version__}, which is not compatible: build it again in this environment, "
            "with `pip install --no-build-isolation --no-deps --force-reinstall ./python` in "
            "Rondo's sources"
        )
    import rondo.torch

    rondo.torch.register()
