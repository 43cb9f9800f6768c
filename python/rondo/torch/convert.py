# SPDX-License-Identifier: Apache-2.0
"""Turns the batch norm layers of models into SyncBatchNorm, and back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, TypeVar

import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from rondo.torch.sync_batch_norm import SyncBatchNorm

_Module = TypeVar("_Module", bound=nn.Module)

# These do no more than batch norm. A class derived from them may do anything in its forward().
_OF_TORCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def convert_sync_batchnorm(
    module: _Module,
    process_group: dist.ProcessGroup | None = None,
    *,
    class_for: Mapping[type[nn.Module], type[nn.Module]] | None = None,
) -> _Module:
    """Turns all layers of torch's BatchNorm classes in a module into SyncBatchNorm layers.

    Each layer stays the same object: only its class changes, as with torch's parametrizations. So it
    keeps its parameters, buffers, hooks and attributes. It is named as in module.named_modules().
    Returns the module. Call it before DDP, on all ranks.

    process_group: if None, layers that have a group keep it.
    class_for: the new class for layers of other classes: one derived from SyncBatchNorm that does what
    their forward() does, or their own class, which leaves them unchanged.

        class SyncBatchNormAct(SyncBatchNorm):
            def forward(self, input):
                return self.act(super().forward(input))

        convert_sync_batchnorm(model, class_for={BatchNormAct: SyncBatchNormAct})

    Raises ValueError for any other layer derived from BatchNorm, with its name and type, for a layer
    whose forward was replaced, and for a lazy layer that has no shape yet. Raises TypeError for a class
    that class_for cannot have. The module is then unchanged.
    """
    classes = dict(class_for or {})
    for old, new in classes.items():
        if not issubclass(old, _BatchNorm) or not (new is old or issubclass(new, SyncBatchNorm)):
            raise TypeError(
                f"class_for has {new.__name__} for {old.__name__}: give a class derived from "
                "rondo.torch.SyncBatchNorm, or the same class, for a class derived from BatchNorm"
            )
    layers = [
        (layer, name, _class_for(layer, name, classes))
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm)
    ]
    for layer, name, kind in layers:
        if issubclass(kind, SyncBatchNorm) and classes.get(type(layer)) is not type(layer):
            _become(layer, kind, process_group, name)
    return module


def revert_sync_batchnorm(module: _Module) -> _Module:
    """Turns the layers that convert_sync_batchnorm() has changed back into what they were, for example
    to export the model to programs without Rondo. Returns the module.

    A layer that was made as SyncBatchNorm becomes a torch.nn.SyncBatchNorm, which in eval mode is
    batch norm for inputs of any shape on any device. Raises ValueError if the class of a layer has
    changed since, for example by a parametrization. The module is then unchanged.
    """
    layers: list[Any] = [
        (layer, name, _classes(layer))
        for name, layer in module.named_modules()
        if isinstance(layer, SyncBatchNorm)
    ]
    for layer, name, (_, now, _) in layers:
        if type(layer) is not now:
            raise ValueError(
                f"{_words(layer, name)}, which convert_sync_batchnorm did not make of it: "
                "revert_sync_batchnorm does not know what it was before; undo that change first"
            )
    for layer, _, (was, _, own) in layers:
        group = layer.process_group
        for attribute in ("name", "_group", "_rondo", "_classes", "__module__"):
            vars(layer).pop(attribute, None)
        layer.__class__ = was
        if issubclass(was, nn.SyncBatchNorm) or "process_group" in own:
            layer.process_group = group
        if "name" in own:
            layer.name = own["name"]
    return module


def replace_torch_sync_batchnorm(replace: bool = True) -> None:
    """Gives Rondo's layer to frameworks that name torch.nn.SyncBatchNorm themselves.

    After this call torch.nn.SyncBatchNorm(...) makes Rondo's layer, and
    torch.nn.SyncBatchNorm.convert_sync_batchnorm(...) is Rondo's. For modules on a GPU both stay
    torch's. With False both are what they were; layers that were made meanwhile stay Rondo's, see
    revert_sync_batchnorm().
    """
    for name, own in _OURS.items():
        now = vars(_THEIRS)[name]
        if replace and now is not own:
            _REPLACED[name] = now
            setattr(_THEIRS, name, own)
        elif not replace and now is own:
            setattr(_THEIRS, name, _REPLACED[name])


def _init(layer: nn.SyncBatchNorm, *args: Any, **options: Any) -> None:
    _REPLACED["__init__"](layer, *args, **options)
    if type(layer) is nn.SyncBatchNorm and not _on_gpu(layer):
        _become(layer, SyncBatchNorm, None, "")


def _convert(cls: type, module: nn.Module, process_group: dist.ProcessGroup | None = None) -> nn.Module:
    if not _on_gpu(module):
        return convert_sync_batchnorm(module, process_group)
    replace_torch_sync_batchnorm(False)  # torch's makes layers on the CPU
    try:
        converted: nn.Module = _THEIRS.convert_sync_batchnorm(module, process_group)
        return converted
    finally:
        replace_torch_sync_batchnorm()


_THEIRS: Any = nn.SyncBatchNorm  # a type checker refuses to assign to methods
_OURS: dict[str, Any] = {"__init__": _init, "convert_sync_batchnorm": classmethod(_convert)}
_REPLACED: dict[str, Any] = {}


def _on_gpu(module: nn.Module) -> bool:
    return any(tensor.is_cuda for tensor in itertools.chain(module.parameters(), module.buffers()))


def _class_for(
    layer: _BatchNorm, name: str, classes: dict[type[nn.Module], type[nn.Module]]
) -> type[nn.Module]:
    kind = type(layer)
    if any(is_lazy(value) for value in (*layer.parameters(False), *layer.buffers(False))):
        raise ValueError(
            f"layer {name or kind.__name__} has no shape yet: run a batch through the module before "
            "convert_sync_batchnorm"
        )
    if kind not in classes and isinstance(layer, SyncBatchNorm):
        return kind
    if kind not in classes and kind not in _OF_TORCH:
        raise ValueError(
            f"{_words(layer, name)}, which may do more than batch norm: name its class in "
            f"convert_sync_batchnorm(..., class_for={{{kind.__name__}: ...}}), with a class derived "
            "from rondo.torch.SyncBatchNorm that does the same, or with itself to leave such layers "
            "as they are. Parametrizations and the like come after the conversion"
        )
    new = classes.get(kind, SyncBatchNorm)
    if new is not kind and "forward" in vars(layer):
        raise ValueError(
            f"{_words(layer, name)} whose forward() was replaced: call convert_sync_batchnorm before "
            "it is replaced"
        )
    return new


def _become(layer: Any, kind: type[nn.Module], group: dist.ProcessGroup | None, name: str) -> None:
    """Changes the class of a layer and adds what SyncBatchNorm has besides BatchNorm."""
    if isinstance(layer, SyncBatchNorm):
        was, _, own = _classes(layer)
        had = layer.process_group
    else:
        was = type(layer)
        had = vars(layer).pop("process_group", None)
        own = {"name": layer.name} if "name" in vars(layer) else {}
        if had is not None:
            own["process_group"] = None  # a group cannot be pickled
    if kind is not type(layer):
        layer._classes = (was, kind, own)
        layer.__class__ = kind
    layer._begin(had if group is None else group, name)


def _classes(layer: SyncBatchNorm) -> tuple[type[nn.Module], type[nn.Module], dict[str, Any]]:
    """The class of the layer before its conversion, the one after it, and those attributes of its own
    that have names of SyncBatchNorm's."""
    classes: tuple[type[nn.Module], type[nn.Module], dict[str, Any]]
    classes = vars(layer).get("_classes", (nn.SyncBatchNorm, SyncBatchNorm, {}))
    return classes


def _words(layer: nn.Module, name: str) -> str:
    kind = type(layer)
    return f"layer {name or kind.__name__} is a {kind.__module__}.{kind.__qualname__}"
