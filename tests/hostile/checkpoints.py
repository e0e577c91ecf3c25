"""Checkpoints and files of weights that are damaged, or claim data that they do not have."""

import io
import json
import math
import pickle
import struct
import zipfile
from typing import Any

import torch

from tests.hostile import pickles, recipes

State = dict[str, Any]


def archive(content, storages, compression=zipfile.ZIP_STORED):
    """A file as PyTorch writes it, with any pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as members:
        members.writestr("archive/data.pkl", content)
        members.writestr("archive/version", "3\n")
        for key, data in storages.items():
            members.writestr(f"archive/data/{key}", data)
    return file.getvalue()


def storage(items, kind="FloatStorage", key="0", *more):
    return (
        pickles.joined(
            pickles.text("storage"),
            pickles.named("torch", kind),
            pickles.text(key),
            pickles.text("cpu"),
            pickles.number(items),
            *more,
        )
        + pickle.BINPERSID
    )


def tensor(of, offset, shape, strides):
    return pickles.called(
        pickles.named("torch._utils", "_rebuild_tensor_v2"),
        of,
        pickles.number(offset),
        pickles.joined(*map(pickles.number, shape)),
        pickles.joined(*map(pickles.number, strides)),
        pickle.NEWFALSE,
        pickles.called(pickles.named("collections", "OrderedDict")),
    )


def holding(value):
    """A pickle of a mapping with one entry."""
    return pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickles.text("w") + value + pickle.SETITEM + pickle.STOP


def named(module, name, *arguments):
    return holding(pickles.called(pickles.named(module, name), *arguments))


FOUR = struct.pack("<4f", 1, 2, 3, 4)
MANY = 1 << 30

# Files that no training run has written.
FILES = {
    "nothing": b"",
    "not a PyTorch file": b"<html>",
    "an archive of nothing": archive(b"", {}),
    "a storage of 2^30": archive(holding(tensor(storage(MANY), 0, (MANY,), (1,))), {"0": FOUR}),
    "a storage that is not there": archive(holding(tensor(storage(4, key="9"), 0, (4,), (1,))), {"0": FOUR}),
    "a storage outside": archive(holding(tensor(storage(4, key="../0"), 0, (4,), (1,))), {"0": FOUR}),
    "a tensor of 2^60": archive(holding(tensor(storage(4), 0, (MANY, MANY), (0, 0))), {"0": FOUR}),
    "a tensor behind its storage": archive(holding(tensor(storage(4), MANY, (4,), (1,))), {"0": FOUR}),
    "a tensor before its storage": archive(holding(tensor(storage(4), -4, (4,), (1,))), {"0": FOUR}),
    "strides of 2^30": archive(holding(tensor(storage(4), 0, (2, 2), (MANY, MANY))), {"0": FOUR}),
    "one storage of two sizes": archive(
        holding(pickles.joined(*(tensor(storage(items), 0, (2,), (1,)) for items in (4, 2)))), {"0": FOUR}
    ),
    "a tensor of nothing": archive(named("torch", "Tensor", pickles.number(MANY)), {}),
    "a bytearray of 2^30": archive(named("builtins", "bytearray", pickles.number(MANY)), {}),
    "a storage called": archive(named("torch", "FloatStorage", pickles.number(MANY)), {}),
    "another function": archive(named("os", "system", pickles.text("true")), {}),
    "zeros compressed a thousandfold": archive(
        holding(tensor(storage(50_000_000), 0, (50_000_000,), (1,))),
        {"0": bytes(200_000_000)},
        zipfile.ZIP_DEFLATED,
    ),
    "tuples in tuples for a key": archive(
        pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickles.nested(900_000) + pickle.NONE + pickle.SETITEM + b".",
        {},
    ),
    "an old file that claims 2^30": pickle.dumps(0x1950A86A20F9469CFC6C, 2)
    + pickle.dumps(1001, 2)
    + pickle.dumps({}, 2)
    + holding(tensor(storage(MANY, "FloatStorage", "0", pickle.NONE), 0, (4,), (1,)))
    + pickle.dumps(["0"], 2),
    "an empty mapping": archive(pickle.dumps({}, 2), {}),
    "a number": archive(pickle.dumps(3, 2), {}),
}


def _saved(change):
    def broken(state):
        new = dict(state)
        change(new)
        return new

    return broken


def _last(weights):
    return [value for value in weights.values() if value.is_floating_point()][-1]


def _recipe(**sections):
    return json.dumps({**recipes.GOOD, **sections})


def _published(channels, numbers):
    """Weights named like an IResNet's published ones, with shapes that claim huge sizes."""

    def weights(_):
        blocks = {f"layer{stage}.{block}.bn1.weight": torch.zeros(1) for stage in range(1, 5) for block in range(2)}
        return {
            **blocks,
            "conv1.weight": torch.empty(channels, 0, 3, 3),
            "fc.weight": torch.empty(numbers, 0),
        }

    return weights


# Each turns a run's checkpoint into a broken one, still written by PyTorch.
CHANGES = {
    "no recipe": _saved(lambda s: s.pop("recipe")),
    "a recipe that is not text": _saved(lambda s: s.update(recipe=3)),
    "a recipe that is not JSON": _saved(lambda s: s.update(recipe="{")),
    "an endlessly nested recipe": _saved(lambda s: s.update(recipe="[" * 100_000)),
    "a recipe of nothing": _saved(lambda s: s.update(recipe="{}")),
    "a recipe of another network": _saved(
        lambda s: s.update(recipe=_recipe(backbone={"name": "mobilefacenet", "width": 0.5}))
    ),
    "a recipe of a huge network": _saved(
        lambda s: s.update(recipe=_recipe(backbone={"name": "iresnet200", "width": 64.0, "embedding_size": 16_384}))
    ),
    "no network": _saved(lambda s: s.pop("network")),
    "a network of numbers": _saved(lambda s: s.update(network={"a": 3})),
    "no centers": _saved(lambda s: s.update(centers={})),
    "no step": _saved(lambda s: s.pop("step")),
    "a step that is text": _saved(lambda s: s.update(step="ten")),
    "a negative step": _saved(lambda s: s.update(step=-5)),
    "a step of 10^30": _saved(lambda s: s.update(step=10**30)),
    "a position that is not a number": _saved(lambda s: s.update(position=math.nan)),
    "a loss scale that is text": _saved(lambda s: s.update(scaler={"scale": "x"})),
    "names that are numbers": _saved(lambda s: s.update(network=dict(enumerate(s["network"].values())))),
    "weights that are not numbers": _saved(lambda s: _last(s["network"]).fill_(math.nan)),
    "centers that are infinite": _saved(lambda s: s["centers"]["weight"].fill_(math.inf)),
    "weights that are integers": _saved(
        lambda s: s.update(network={name: value.long() for name, value in s["network"].items()})
    ),
    "published weights that are not numbers": lambda _: {"conv1.weight": torch.full((2,), math.nan)},
    "a method of another form": _saved(lambda s: s.update(method=[])),
    "a method with more": _saved(lambda s: s.update(method={"more": torch.zeros(3)})),
    "an average of nothing": _saved(lambda s: s.update(average={"a": torch.zeros(3)})),
    "an IResNet of 2^30 channels": _published(MANY, 512),
    "an IResNet of 4096 channels": _published(4096, 16_384),
    "an IResNet of 2^30 numbers": _published(64, MANY),
    "another schema": _saved(lambda s: s.update(schema="facerts.checkpoint/9")),
}


def write_changes(good, folder):
    """Write each of ``CHANGES`` as a file."""
    state = torch.load(good, weights_only=True)
    paths = {}
    for number, (what, change) in enumerate(CHANGES.items()):
        paths[what] = folder / f"changed_{number}.pt"
        torch.save(change(state), paths[what])
    return paths
