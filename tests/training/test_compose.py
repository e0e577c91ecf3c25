"""Recipes made of a base, a method and a recipe's own fields are what the whole files before them were."""

from __future__ import annotations

import json
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from facerts.errors import Error, RecipeError
from facerts.training.checkpoint import FILE, load_checkpoint
from facerts.training.compose import SHIPPED
from facerts.training.loop import train
from facerts.training.methods import METHODS
from facerts.training.methods.cosface import CosFace
from facerts.training.recipe import Recipe, changed_fields, load_recipe
from tests.command import run

ROOT = Path(__file__).parents[2]
# Every recipe as it was when each was a whole file: what most of a data set's recipes said, and what each said itself.
BEFORE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("recipes_before.json").read_text())
BASES = ("casia", "deepglint", "faces_small", "papers")
# Their precision has become "auto" since. The one other change: the RTS paper ramps the margin of ArcFace's head alone.
WITHOUT_RAMP = ("cosface", "magface", "adaface")


def before(name: str) -> Recipe:
    """An old recipe, complete."""
    base = next((base for base in BASES if name.startswith(f"{base}_")), None)
    fields: dict[str, Any] = {}
    for key, value in {**BEFORE.get(base or "", {}), **BEFORE[name]}.items():
        *sections, last = key.split(".")
        section = fields
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value
    return Recipe.model_validate(fields)


@pytest.fixture(autouse=True)
def _places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACERTS_DATA", "DATA")
    monkeypatch.setenv("FACERTS_MODELS", "MODELS")


@pytest.mark.parametrize("name", [name for name in BEFORE if name not in BASES])
def test_an_old_name_is_the_recipe_that_its_whole_file_was(name: str) -> None:
    old, new = before(name), load_recipe(name)
    if name.endswith(WITHOUT_RAMP):
        assert (old.optim.margin_ramp, new.optim.margin_ramp) == (0.5, 0)
        new = load_recipe(name, ["optim.margin_ramp=0.5"])
    assert new == old
    assert new.to_yaml() == old.to_yaml()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("base", BASES)
def test_a_method_on_a_base_is_the_recipe_of_both_names(base: str, method: str) -> None:
    recipe = load_recipe(base, [f"method={method}"])
    assert recipe.name == f"{base}_{method}"
    assert recipe == load_recipe(recipe.name)


@pytest.mark.parametrize("base", BASES)
def test_the_margin_of_arcface_heads_is_ramped_and_no_other(base: str) -> None:
    for method in ("arcface", "rts", "dul", "godin", "relaxed_softmax", "crfiqa"):
        assert load_recipe(base, [f"method={method}"]).optim.margin_ramp == 0.5
    for method in WITHOUT_RAMP:
        assert load_recipe(base, [f"method={method}"]).optim.margin_ramp == 0


def test_a_methods_file_leaves_open_only_what_depends_on_the_data() -> None:
    for file in (SHIPPED / "methods").iterdir():
        settings = METHODS[Path(file.name).stem].Config.model_fields.keys()
        said = yaml.safe_load(file.read_text()).get("method", {}).keys()
        assert settings - said <= {"logit_scale", "rho", "margin_gradient"}, file.name


def test_every_file_is_listed_for_the_wheel() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = [pattern.strip() for pattern in config["options.package_data"]["facerts.recipes"].split(",")]
    listed = {path for pattern in patterns for path in (ROOT / "recipes").glob(pattern)}
    assert listed == set((ROOT / "recipes").rglob("*.yaml"))


@pytest.mark.parametrize("name", ["casia", "deepglint"])
def test_a_published_recipe_is_whole_and_the_same_as_its_composition(name: str) -> None:
    whole = yaml.safe_load((SHIPPED / f"{name}_rts.yaml").read_text())
    assert "base" not in whole
    assert whole["method"]["name"] == "rts"
    assert load_recipe(name, ["method=rts"]) == load_recipe(f"{name}_rts")


def test_both_published_recipes_list_the_same_departures_from_the_paper() -> None:
    departures = [
        (SHIPPED / f"{name}_rts.yaml").read_text().split("# Not in the paper")[1].split("\nname:")[0]
        for name in ("casia", "deepglint")
    ]
    assert departures[0] == departures[1]


def test_fields_of_the_command_line_cover_the_methods_file_in_any_order() -> None:
    for overrides in (["optim.epochs=3", "method=pfe"], ["method=pfe", "optim.epochs=3"]):
        recipe = load_recipe("casia", overrides)
        assert (recipe.optim.epochs, recipe.optim.lr, recipe.backbone.weights) == (
            3,
            0.01,
            "runs/casia_arcface",
        )
    assert load_recipe("casia", ["name=mine", "method=pfe"]).name == "mine"
    assert load_recipe("casia", ["method=dul", "method=rts"]) == load_recipe("casia_rts")


@pytest.mark.parametrize("override", ["method=dul", "method.name=dul", "method={name: dul}"])
def test_each_way_to_name_a_method_chooses_it(override: str) -> None:
    recipe = load_recipe("casia_rts", [override])
    assert recipe.name == "casia_rts_dul"
    assert recipe.method == load_recipe("casia_dul").method


def test_the_recipes_own_method_named_again_changes_nothing() -> None:
    assert load_recipe("casia_rts", ["method=rts"]) == load_recipe("casia_rts")
    tuned = load_recipe("casia_rts", ["method=rts", "method.kl_weight=1"])
    assert changed_fields(load_recipe("casia_rts"), tuned) == ["method.kl_weight"]


def test_a_method_without_a_file_has_nothing_special(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "mine", CosFace)
    recipe = load_recipe("faces_small", ["method=mine"])
    assert recipe.method == {"name": "mine", "logit_scale": 32, "margin": 0.35}
    assert recipe.optim == load_recipe("faces_small_arcface").optim


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a recipe's file."""

    def written(file: str, /, **fields: Any) -> Path:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(fields))
        return path

    return written


def test_a_file_covers_its_base_field_by_field(write: Write) -> None:
    mine = load_recipe(write("mine.yaml", base="casia_rts", optim={"lr": 0.05, "milestones": [10]}))
    published = load_recipe("casia_rts")
    assert changed_fields(published, mine) == ["name", "optim.lr", "optim.milestones"]
    assert mine.name == "mine"
    assert (mine.optim.lr, mine.optim.milestones) == (0.05, [10])
    assert load_recipe(write("mine.yaml", base="casia_rts", name="other")).name == "other"


def test_a_file_covers_the_file_of_the_method_that_it_chooses(write: Write) -> None:
    mine = load_recipe(write("mine.yaml", base="faces_small", method="pfe", optim={"epochs": 3}))
    assert (mine.name, mine.optim.epochs, mine.optim.lr) == ("mine", 3, 0.01)
    assert mine.backbone.weights == "runs/faces_small_arcface"
    mine = load_recipe(write("mine.yaml", base="faces_small", method={"name": "tempnet", "tau_max": 0.1}))
    assert (mine.method["rho"], mine.method["tau_max"], mine.data.augmentation.corruption) == (3.5, 0.1, 0.5)


def test_a_base_may_be_a_file_beside_the_recipe_wherever_it_is_read_from(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("common/lab.yaml", base="casia", seed=7, method={"logit_scale": 48})
    mine = write("runs/mine.yaml", base="../common/lab.yaml", method="cosface")
    monkeypatch.chdir(tmp_path)
    for path in (mine, mine.relative_to(tmp_path)):
        recipe = load_recipe(path)
        assert (recipe.seed, recipe.method["logit_scale"], recipe.method["margin"]) == (7, 48, 0.35)
    # A method on somebody's own base starts from that base's runs.
    assert load_recipe(tmp_path / "common/lab.yaml", ["method=pfe"]).backbone.weights == "runs/lab_arcface"


def test_a_recipe_without_a_base_is_taken_as_it_is_written(write: Write) -> None:
    fields: dict[str, Any] = {
        "name": "whole",
        "data": {"name": "faces", "terms": "none", "train": "faces"},
        "backbone": {"name": "mobilefacenet"},
        "optim": {"epochs": 1, "batch_size": 16},
    }
    named = load_recipe(write("whole.yaml", **fields, method="supcon"))
    assert named == load_recipe(write("whole.yaml", **fields, method={"name": "supcon"}))
    assert named.data.augmentation.scale == 0
    assert load_recipe(write("whole.yaml", **fields, method="magface")).optim.margin_ramp == 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base": "casai", "method": "rts"}, "no recipe 'casai', did you mean 'casia'"),
        ({"base": "gone.yaml"}, r"gone\.yaml: no such recipe file"),
        ({"base": "mine.yaml"}, r"bases go in a circle: .*mine\.yaml -> .*mine\.yaml"),
        ({"base": "../folder/./mine.yaml"}, r"bases go in a circle"),
        (
            {"base": ["casia"]},
            r"mine\.yaml: base: the name of a recipe that ships or the path of a YAML file",
        ),
        ({"base": None}, r"mine\.yaml: base: the name of a recipe"),
        ({"base": ""}, "no recipe ''"),
        (
            {"base": "casia"},
            r"mine\.yaml: based on casia: names no method; add method=NAME, one of adaface, arc",
        ),
        ({"base": "casia", "method": "rst"}, "no method 'rst', did you mean 'rts'"),
        (
            {"base": "casia_rts", "optim": {"lrr": 1}},
            r"based on casia_rts: unknown key 'optim\.lrr', did you mean",
        ),
        ({"base": "casia_rts", "optim": 3}, r"mine\.yaml: based on casia_rts: optim"),
        ({"base": "casia_rts", "data": {"train": "faces"}}, "give data.name=… and data.terms=… too"),
        ({"base": "casia_rts", "data": {"train": "faces", "name": "x"}}, "give data.terms=… too"),
        ({"base": "casia_rts", "data": None}, r"data: Input should be"),
    ],
)
def test_a_wrong_base_says_what_is_wrong(write: Write, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(write("folder/mine.yaml", **fields))


def test_a_circle_of_several_files_is_found_and_so_are_bases_without_end(write: Write) -> None:
    write("b.yaml", base="c.yaml")
    write("c.yaml", base="a.yaml")
    with pytest.raises(RecipeError, match=r"a\.yaml -> \S*b\.yaml -> \S*c\.yaml -> \S*a\.yaml"):
        load_recipe(write("a.yaml", base="b.yaml"))
    last = write("0.yaml", base="casia_rts")
    for number in range(1, 5):
        last = write(f"{number}.yaml", base=f"{number - 1}.yaml")
    assert load_recipe(last.with_name("3.yaml")).name == "3"
    with pytest.raises(RecipeError, match="more than 5 recipes are based on each other"):
        load_recipe(last)


def test_other_images_than_the_bases_with_name_and_terms_are_taken(write: Write) -> None:
    data = {"train": "faces", "name": "my faces", "terms": "internal"}
    mine = load_recipe(write("mine.yaml", base="casia_rts", data=data)).data
    assert (mine.train, mine.name, mine.terms, mine.workers) == (["faces"], "my faces", "internal", 8)


def test_a_run_needs_nothing_that_its_recipe_was_made_of(
    make_recipe: Callable[..., Recipe], write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = make_recipe("optim.epochs=1", "optim.milestones=[]")
    base = tmp_path / "tiny.yaml"
    base.write_text(whole.to_yaml())
    mine = write("mine.yaml", base="tiny.yaml", method="dul", optim={"lr": 0.02})
    recipe = load_recipe(mine)
    folder = tmp_path / "run"
    train(recipe, folder)
    base.unlink()
    mine.unlink()
    kept, _ = load_checkpoint(folder / FILE)
    assert kept == load_recipe(folder / "recipe.yaml") == recipe
    assert kept.method["name"] == "dul"
    assert "base" not in yaml.safe_load((folder / "recipe.yaml").read_text())


def test_a_run_of_a_whole_recipe_goes_on_with_a_composed_one(
    make_recipe: Callable[..., Recipe], write: Write, tmp_path: Path
) -> None:
    whole = make_recipe("optim.epochs=1", "optim.milestones=[]", "method=arcface", "name=tiny_arcface")
    train(whole, tmp_path / "run")
    base = write(
        "base.yaml", **{**whole.model_dump(mode="json"), "name": "tiny", "method": {"logit_scale": 64}}
    )
    composed = load_recipe(base, ["method=arcface"])
    train(composed, tmp_path / "run", resume=True)
    with pytest.raises(Error, match=r"different recipe \(optim\.lr changed\)"):
        train(load_recipe(base, ["method=arcface", "optim.lr=0.1"]), tmp_path / "run", resume=True)


def test_the_command_shows_the_complete_recipe_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", "casia", "method=pfe", "optim.lr=0.02", "--show") == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert load_recipe(shown) == load_recipe("casia_pfe", ["optim.lr=0.02"])
    assert [path.name for path in tmp_path.iterdir()] == ["shown.yaml"]


def test_augmentation_by_former_names_covers_that_of_the_methods_file(tmp_path: Path) -> None:
    former = "{ladder: 0.2, ladder_strength: 0.3}"
    (tmp_path / "mine.yaml").write_text(f"base: faces_small\nmethod: tau\ndata: {{augmentation: {former}}}\n")
    by_key = [f"data.augmentation.{setting}" for setting in ("ladder=0.2", "ladder_strength=0.3")]
    for recipe in (
        load_recipe("faces_small", ["method=tau", *by_key]),
        load_recipe("faces_small_tau", [f"data.augmentation={former}"]),
        load_recipe(tmp_path / "mine.yaml"),
    ):
        assert (recipe.data.augmentation.corruption, recipe.data.augmentation.max_severity) == (0.2, 0.3)
        assert "ladder" not in recipe.to_yaml()


def test_augmentation_by_both_its_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "base: faces_small\nmethod: tau\ndata: {augmentation: {ladder: 0.2, corruption: 0.3}}\n"
    )
    with pytest.raises(RecipeError, match="ladder"):
        load_recipe(tmp_path / "mine.yaml")
