from __future__ import annotations

from pathlib import Path

import pytest

from facerts.errors import RecipeError
from facerts.training.compose import shipped_recipes
from facerts.training.methods import METHODS
from facerts.training.recipe import changed_fields, load_recipe

# Bases name no method of their own.
BASES = ("casia", "deepglint", "faces_small", "papers")
SHIPPED = sorted(
    {*shipped_recipes(), *(f"{base}_{method}" for base in BASES for method in METHODS)} - {*BASES}
)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_recipe_is_complete_and_named_after_its_file(name: str) -> None:
    assert load_recipe(name).name == name


@pytest.mark.parametrize("name", SHIPPED)
def test_a_written_recipe_reads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "copy.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "copy.yaml") == recipe


@pytest.mark.parametrize(
    ("rts", "arcface"),
    [(f"{base}_rts", f"{base}_arcface") for base in BASES],
)
def test_the_arcface_recipe_differs_only_in_the_method(rts: str, arcface: str) -> None:
    changed = changed_fields(load_recipe(rts), load_recipe(arcface))
    assert [name for name in changed if not name.startswith("method.")] == ["name"]


def test_casia_has_the_papers_settings() -> None:
    recipe = load_recipe("casia_rts")
    assert recipe.backbone.name == "iresnet64_se"
    assert recipe.backbone.embedding_size == 512
    assert (recipe.optim.lr, recipe.optim.momentum, recipe.optim.weight_decay) == (0.1, 0.9, 5e-4)
    assert (recipe.optim.batch_size, recipe.optim.epochs, recipe.optim.milestones) == (512, 32, [20, 28])
    assert (recipe.method["degrees"], recipe.method["kl_weight"]) == (16, 10)
    assert (recipe.method["logit_scale"], recipe.method["margin"]) == (64, 0.5)


def test_fine_tuning_continues_from_its_first_stage() -> None:
    first, second = load_recipe("finetune_rts_heads"), load_recipe("finetune_rts")
    assert (first.backbone.frozen, second.backbone.frozen) == (True, False)
    assert second.backbone.weights == f"runs/{first.name}"
    # Class centers and heads are initialized from the first stage only if data, network and method are the same.
    assert (first.data.train, first.method) == (second.data.train, second.method)
    change = {"weights": None, "frozen": False}
    assert first.backbone.model_copy(update=change) == second.backbone.model_copy(update=change)
    assert second.optim.lr < first.optim.lr / 10
    assert 0 < second.optim.warmup_epochs < 1


def test_deepglint_has_the_papers_schedule() -> None:
    recipe = load_recipe("deepglint_rts")
    assert (recipe.optim.epochs, recipe.optim.milestones) == (22, [10, 18])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.lrr=0.1", r"unknown key 'optim\.lrr', did you mean 'optim\.lr'"),
        ("optim.lr=fast", r"optim\.lr: .*number"),
        ("method.margn=0.3", "rts has no setting 'margn', did you mean 'margin'"),
        ("method.name=rst", "no method 'rst', did you mean 'rts'"),
        ("method.degrees=2", "degrees"),
        ("backbone.name=iresnet51", "no backbone 'iresnet51', did you mean 'iresnet"),
        ("optim.milestones=[40]", "before the end"),
        ("optim.milestones=[9, 3]", "^casia_rts: optim: milestones .* must rise"),
        ("backbone.frozen=true", r"^casia_rts: backbone\.frozen keeps"),
        ("optim.lr", "key=value"),
        ("seed.deep=1", "no fields below"),
        ("optim.epochs=[", "valid YAML"),
        ("data.train=${NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE"),
    ],
)
def test_a_wrong_override_is_a_clear_error(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe("casia_rts", [override])


def test_overrides_reach_nested_fields_and_keep_the_rest() -> None:
    before, after = load_recipe("casia_rts"), load_recipe("casia_rts", ["optim.lr=0.05", "data.workers=2"])
    assert after.optim.lr == 0.05
    assert after.data.workers == 2
    assert after.optim.epochs == before.optim.epochs


NAME, TERMS = "data.name=mine", "data.terms=none"


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        (["data.train=faces"], "give data.name=… and data.terms=… too"),
        (["data.train=faces", NAME], "give data.terms=… too"),
        (["data.train=[faces, more]", TERMS, "optim.lr=0.1"], "give data.name=… too"),
        (["data.unlabeled=faces"], "give data.name=… and data.terms=… too"),
    ],
)
def test_other_images_need_their_own_name_and_terms(overrides: list[str], missing: str) -> None:
    with pytest.raises(RecipeError, match=missing):
        load_recipe("casia_rts", overrides)


def test_other_images_with_name_and_terms_are_accepted() -> None:
    other = load_recipe("casia_rts", ["data.train=faces", NAME, TERMS]).data
    assert (other.train, other.name, other.terms) == (["faces"], "mine", "none")
    whole = load_recipe("casia_rts", ["data={train: faces, name: mine, terms: none}"]).data
    assert (whole.train, whole.name) == (["faces"], "mine")
    own = load_recipe("casia_rts").data
    assert load_recipe("casia_rts", ["data.train=datasets/faces_webface_112x112"]).data == own
    assert load_recipe("casia_rts", ["data.corrupt_fraction=0.2"]).data.name == own.name
    # A recipe without terms is still an error.
    with pytest.raises(RecipeError, match=r"data\.terms: Field required"):
        load_recipe("casia_rts", ["data={train: faces, name: mine}"])


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean 'casia_rts'"):
        load_recipe("casia_rst")


@pytest.mark.parametrize("text", ["- a list", "name: [unclosed", "name: x"])
def test_a_file_that_is_not_a_recipe_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"broken\.yaml"):
        load_recipe(path)


def test_the_environment_says_where_the_data_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACERTS_DATA", "/somewhere")
    assert load_recipe("faces_small_rts").data.train == ["/somewhere/faces/train-*.tar"]


def test_only_fields_that_matter_to_the_weights_count_as_changed() -> None:
    before = load_recipe("casia_rts")
    assert changed_fields(before, load_recipe("casia_rts", ["data.workers=0", "logging.every_steps=7"])) == []
    assert changed_fields(before, load_recipe("casia_rts", ["optim.lr=0.2"])) == ["optim.lr"]
