# SPDX-License-Identifier: Apache-2.0
"""Tells torch.distributed of the backend "rondo".

torch loads this module when a program first names the backend. An exception while it is loaded
would hide its cause, so the module imports nothing; register() does.
"""


def register() -> None:
    """Registers the backend. If it was built for another version of torch, or without torch, it is not
    available, and making a group with it raises an ImportError with the reason and the remedy."""
    import torch
    import torch.distributed as dist

    from rondo import _built_for

    have = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if have != _built_for.TORCH:
        if _built_for.TORCH == "none":
            why = "rondo was installed without its backend for torch, because its build found no torch"
        else:
            why = (
                f"rondo.torch was built for torch {_built_for.TORCH}, and this is torch "
                f"{torch.__version__}, which is not compatible"
            )

        def refuse(*_: object) -> None:
            raise ImportError(
                f"{why}: build it again in this environment, with `pip install --no-build-isolation "
                "--no-deps --force-reinstall ./python` in Rondo's sources"
            )

        # A backend that is registered, but not in this list, is not available to torch.
        dist.Backend.register_backend("rondo", refuse, extended_api=True, devices=["cpu", "cuda"])
        dist.Backend.backend_list.remove("rondo")
        return
    import rondo.torch

    rondo.torch.register()
