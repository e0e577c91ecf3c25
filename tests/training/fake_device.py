"""A device that computes nothing, and counts how often the host waits for it.

It is PyTorch's meta device: its tensors have shapes but no values, so everything that needs a value on the host, or
copies between host and device, passes by here.
"""

import importlib
import traceback
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")


class Waits(TorchDispatchMode):
    """Counts the waits within the block, by the line of facerts that caused them.

    A wait is a value read, a copy that is not queued, or a result whose shape depends on values.
    """

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        name = str(function)
        first = arguments[0] if arguments else None
        on_device = isinstance(first, Tensor) and first.device == META
        if name.startswith("aten._fused_"):
            return None  # has no implementation on the meta device, and changes its arguments in place
        if on_device and name == "aten._local_scalar_dense.default":
            self._note(name)
            return 0
        if on_device and name == "aten._unique2.default":
            self._note(name)
            return tuple(torch.zeros(1, dtype=torch.int64, device=META) for _ in range(3))
        if on_device and (name.startswith("aten.nonzero") or _picks_by_value(name, arguments)):
            self._note(name)
        if name == "aten._to_copy.default" and options.get("device") is not None:
            target = torch.device(options["device"])
            if target.type != first.device.type:
                if not options.get("non_blocking"):
                    self._note(name)
                if target.type == "cpu":
                    return torch.zeros(first.shape, dtype=options.get("dtype") or first.dtype)
        if name == "aten.copy_.default" and first.device.type != arguments[1].device.type:
            if not (len(arguments) > 2 and arguments[2]):
                self._note(name)
            if not on_device:
                return first
        return function(*arguments, **options)

    def _note(self, name):
        own = [frame for frame in traceback.extract_stack() if "/facerts/" in frame.filename]
        self.lines.append(f"{name} at {own[-1].filename}:{own[-1].lineno}" if own else name)


def _picks_by_value(name, arguments):
    """Whether it is an index with a mask."""
    if name != "aten.index.Tensor":
        return False
    return any(index is not None and index.dtype == torch.bool for index in arguments[1])


@contextmanager
def no_autocast(*_, **__):
    with nullcontext():
        yield


def use_fake_device(monkeypatch):
    """Make every learner use the fake device."""
    monkeypatch.setattr("facerts.training.learner.choose_device", lambda name: META)
    monkeypatch.setattr("facerts.training.learner.compiled", lambda network: network)
    monkeypatch.setattr(torch, "autocast", no_autocast)
    for module in ("sgd", "adamw", "adam"):
        monkeypatch.setattr(
            importlib.import_module(f"torch.optim.{module}"),
            "_device_dtype_check_for_fused",
            lambda *_, **__: None,
            raising=False,
        )
    for name in ("tensor", "as_tensor"):
        monkeypatch.setattr(torch, name, _copying(getattr(torch, name)))


def _copying(create):
    """A function that creates a tensor on the host first, as PyTorch's do without passing by ``Waits``."""

    def created(data, *, device=None, **options):
        return create(data, **options) if device is None else create(data, **options).to(device)

    return created
