"""Damaged or forged recipes and checkpoints are rejected in bounded memory."""

import random
from collections import OrderedDict

import pytest
import torch
from torch import Tensor

from facerts.errors import ModelError
from facerts.training.checkpoint import FILE, load_checkpoint, load_network, read_file
from facerts.training.recipe import Recipe, load_recipe
from facerts.training.torch_file import check_torch_file
from tests.command import run
from tests.contents import write_each
from tests.hostile import checkpoints, recipes
from tests.hostile.sandbox import read_bounded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "hostile", "suffix"),
    [("recipe", recipes.HOSTILE, ".yaml"), ("checkpoint", checkpoints.FILES, ".pt")],
    ids=["recipes", "weights"],
)
def test_hostile_files_are_rejected_in_bounded_memory(tmp_path, kind, hostile, suffix):
    for path, sentence in read_bounded(kind, write_each(tmp_path, hostile, suffix)).items():
        assert sentence.startswith(f"{path}: "), sentence


def test_a_recipe_may_begin_with_a_byte_order_mark_and_is_written_without_references(tmp_path):
    recipe = Recipe.model_validate(recipes.GOOD)
    (tmp_path / "r.yaml").write_bytes(b"\xef\xbb\xbf" + recipe.to_yaml().encode())
    assert load_recipe(tmp_path / "r.yaml") == recipe


@pytest.mark.slow
def test_damaged_checkpoints_are_one_line_errors(trained_run, tmp_path):
    paths = checkpoints.write_changes(trained_run / FILE, tmp_path)
    messages = read_bounded("checkpoint", list(paths.values()))
    for what, path in paths.items():
        assert messages[path].startswith(str(path)), what


def same(one, other):
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_flipped_bit_is_detected_or_harmless(trained_run, tmp_path):
    content = (trained_run / FILE).read_bytes()
    whole = read_file(trained_run / FILE)
    drawn = random.Random(3)
    broken = tmp_path / "broken.pt"
    found = []
    for _ in range(60):
        damaged = bytearray(content)
        damaged[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
        broken.write_bytes(damaged)
        try:
            assert same(read_file(broken), whole)
        except ModelError as error:
            found.append(str(error))
    # The padding between members is never read.
    assert len(found) > 30
    assert all(sentence.startswith(f"{broken}: not a readable checkpoint") for sentence in found)


def test_a_changed_weight_is_detected(trained_run, tmp_path):
    content = bytearray((trained_run / FILE).read_bytes())
    weight = read_file(trained_run / FILE)["centers"]["weight"]
    content[content.index(weight.numpy().tobytes())] ^= 1
    (tmp_path / "broken.pt").write_bytes(content)
    with pytest.raises(ModelError, match=r"broken\.pt: .*damaged \(wrong checksum of .*\); copy it again"):
        load_network(tmp_path / "broken.pt")


@pytest.mark.parametrize("legacy", [False, True])
def test_both_formats_of_pytorch_are_read(tmp_path, legacy):
    base = torch.arange(20.0)
    state = {
        "kinds": [torch.zeros(3, dtype=kind) for kind in (torch.bool, torch.uint8, torch.int64, torch.bfloat16)],
        "views": (base[3:6], base.reshape(4, 5).t(), base.half(), torch.empty(0, 7), torch.tensor(1.5)),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "weights": torch.nn.BatchNorm1d(3).state_dict(),
        "ordered": OrderedDict(a=1, b=[2, None, "c"]),
        "numbers": {0: 1.5, 1: 10**12, 2: True},
    }
    torch.save(state, tmp_path / "file.pt", _use_new_zipfile_serialization=not legacy)
    check_torch_file(tmp_path / "file.pt")
    assert same(read_file(tmp_path / "file.pt"), state)


@pytest.mark.parametrize("part", ["network", "method"])
def test_a_weight_that_does_not_belong_to_the_recipe_is_named(trained_run, tmp_path, part):
    state = read_file(trained_run / FILE)
    torch.save({**state, part: {**state[part], "more": torch.zeros(3)}}, tmp_path / "more.pt")
    with pytest.raises(ModelError, match=rf"more\.pt: the {part} does not fit the recipe \(more differs\)"):
        load_network(tmp_path / "more.pt")


def test_a_run_with_incomplete_state_is_not_resumed(trained_run, tmp_path, capsys):
    recipe, state = load_checkpoint(trained_run / FILE)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    (tmp_path / "run").mkdir()
    for part in ("optimizer", "scaler", "network"):
        broken = {name: value for name, value in state.items() if name != part}
        torch.save(broken, tmp_path / "run" / FILE)
        assert run("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run", "--resume") == 2
        error = capsys.readouterr().err
        assert f"error: {tmp_path / 'run' / FILE}: " in error
        assert part in error


def test_a_checkpoint_that_is_cut_short_anywhere_is_refused(trained_run, tmp_path):
    content = (trained_run / FILE).read_bytes()
    for share in (0.0, 0.001, 0.3, 0.9, 0.999):
        (tmp_path / "cut.pt").write_bytes(content[: int(share * len(content))])
        with pytest.raises(ModelError, match=r"cut\.pt: not a readable checkpoint"):
            load_network(tmp_path / "cut.pt")
