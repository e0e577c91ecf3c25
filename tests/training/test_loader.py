"""Batches from shuffled tar shards and record sets do not depend on the workers or on where a run is resumed."""

import pytest
import torch

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.training.loader import Batch, TrainingData

Batches = list[Batch]

# Two epochs of four batches each, and into the third.
STEPS = 9
# Required for images other than the recipe's.
NAMED = ("data.name=drawn", "data.terms=none")


@pytest.fixture(scope="module")
def shuffled(drawn_faces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shuffled")
    pack([drawn_faces], OutputSpec(folder / "shards", 3), shuffle_seed=1)
    pack([drawn_faces], OutputSpec(folder / "records"), shuffle_seed=1)
    return {"shards": str(folder / "shards" / "shard-*.tar"), "records": str(folder / "records")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("layout", ["shards", "records"])
def test_epochs_are_the_same_for_any_number_of_workers(make_recipe, shuffled, layout):
    def batches(workers, start=0):
        recipe = make_recipe(
            f"data.train={shuffled[layout]}",
            *NAMED,
            f"data.workers={workers}",
            "data.augmentation.rotation=10",
            "data.augmentation.change=0.5",
        )
        return list(TrainingData(recipe).batches(start, STEPS))

    def assert_same(one, other):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))

    alone = batches(0)
    assert len(alone) == STEPS
    for epoch in (alone[:4], alone[4:8]):
        assert sorted(torch.cat([indices for _, _, indices, *_ in epoch]).tolist()) == list(range(64))
    assert not torch.equal(alone[0][2], alone[4][2])
    for workers in (1, 2, 4):
        assert_same(batches(workers), alone)
    assert_same(batches(2, start=5), alone[5:])


def test_both_layouts_give_the_same_batches(make_recipe, shuffled):
    pairs = [
        TrainingData(make_recipe(f"data.train={shuffled[layout]}", *NAMED)).batches(0, 2)
        for layout in ("shards", "records")
    ]
    for one, other in zip(*pairs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
