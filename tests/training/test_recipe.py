"""Recipes: those that ship, those composed of a base and a method, and what is said of wrong ones."""

from collections.abc import Callable
from configparser import ConfigParser
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from facerts.errors import RecipeError
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names
from facerts.training.checkpoint import FILE, load_checkpoint
from facerts.training.compose import SHIPPED, shipped_recipes
from facerts.training.loop import train
from facerts.training.recipe import changed_fields, load_recipe, require_values
from tests.command import run

ROOT = Path(__file__).parents[2]
# Bases name no method of their own.
BASES = ("casia", "deepglint", "faces_small", "ours/faces_small", "ours/papers")
NAME, TERMS = "data.name=mine", "data.terms=none"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path):
    """Write a recipe's file."""

    def written(file, /, **fields):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(fields))
        return path

    return written


def test_every_shipped_recipe_is_complete_named_after_its_file_and_reads_back_equal(tmp_path):
    composed = [f"{base}_{method}" for base in BASES for method in LOSSES]
    for name in {*shipped_recipes(), *composed} - {*BASES}:
        recipe = load_recipe(name)
        assert recipe.name == Path(name).name
        (tmp_path / "copy.yaml").write_text(recipe.to_yaml())
        assert load_recipe(tmp_path / "copy.yaml") == recipe, name


def test_recipes_that_ship_need_no_variable_but_ours_to_train_and_at_most_the_images(monkeypatch):
    monkeypatch.setenv("FACERTS_DATA", "/somewhere")
    assert load_recipe("ours/faces_small").data.train == ["/somewhere/faces/train-*.tar"]
    for variable in ("FACERTS_DATA", "FACERTS_MODELS", "FACERTS_NON_FACES"):
        monkeypatch.delenv(variable)
    # Validation sets that are not there are left out, so their variables need not be set.
    require_values(load_recipe("ours/faces_small", ["data.train=mine", NAME, TERMS]))
    for name in shipped_recipes():
        recipe, missing = load_recipe(name), None
        if name.startswith("ours/"):
            missing = r"^data\.train.*: the environment variable FACERTS_DATA is not set"
        elif name in ("faces_small", "my_faces"):
            missing = r"^data\.train: name your training images: data\.train=people/$"
        with pytest.raises(RecipeError, match=missing) if missing else nullcontext():
            require_values(recipe)


def test_a_base_is_trained_with_rts_unless_a_method_is_named(write):
    assert load_recipe("casia") == load_recipe("casia_rts")
    mine = load_recipe(write("mine.yaml", base="casia", method={"margin": 0.3}))
    assert (mine.name, mine.method["name"], mine.method["margin"]) == ("mine", "rts", 0.3)
    assert load_recipe("ours/faces_small").name == "faces_small_rts"


def test_a_method_on_a_base_is_the_recipe_of_both_names_and_ramps_the_margins_of_arcface_heads_alone():
    for base in BASES:
        recipes = {method: load_recipe(base, [f"method={method}"]) for method in LOSSES}
        for method, recipe in recipes.items():
            assert recipe.name == f"{Path(base).name}_{method}"
            assert recipe == load_recipe(f"{base}_{method}")
        ramps = {method: recipe.optim.margin_ramp for method, recipe in recipes.items()}
        assert {ramps[method] for method in ("arcface", "rts", "dul", "godin", "crfiqa")} == {0.5}
        assert {ramps[method] for method in ("cosface", "magface", "adaface")} == {0}
        changed = changed_fields(recipes["rts"], recipes["arcface"])
        assert [name for name in changed if not name.startswith("method.")] == ["name"]


def test_the_published_recipes_are_whole_and_the_same_as_their_compositions():
    departures = []
    for name in ("casia", "deepglint"):
        text = (SHIPPED / f"{name}_rts.yaml").read_text()
        assert "base" not in yaml.safe_load(text)
        assert load_recipe(name, ["method=rts"]) == load_recipe(f"{name}_rts")
        departures.append(text.split("# Not in the paper")[1].split("\nname:")[0])
    assert departures[0] == departures[1]


def test_fine_tuning_continues_from_its_first_stage():
    first, second = load_recipe("finetune_rts_heads"), load_recipe("finetune_rts")
    assert (first.backbone.frozen, second.backbone.frozen) == (True, False)
    assert second.backbone.weights == f"runs/{first.name}"
    # Class centers and heads are initialized from the first stage only if data, network and method are the same.
    assert (first.data.train, first.method) == (second.data.train, second.method)
    change = {"weights": None, "frozen": False}
    assert first.backbone.model_copy(update=change) == second.backbone.model_copy(update=change)
    assert second.optim.lr < first.optim.lr / 10
    assert 0 < second.optim.warmup_epochs < 1


def test_a_methods_file_leaves_open_only_what_depends_on_the_data():
    for file in (SHIPPED / "methods").iterdir():
        settings = setting_names(LOSSES[Path(file.name).stem])
        given = yaml.safe_load(file.read_text()).get("method", {}).keys()
        assert settings - given <= {"logit_scale", "rho", "margin_gradient"}, file.name


def test_every_file_is_listed_for_the_wheel():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = [pattern.strip() for pattern in config["options.package_data"]["facerts.recipes"].split(",")]
    listed = {path for pattern in patterns for path in (ROOT / "recipes").glob(pattern)}
    assert listed == set((ROOT / "recipes").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.lrr=0.1", r"unknown key 'optim\.lrr', did you mean 'optim\.lr'"),
        ("optim.lr=fast", r"optim\.lr: .*number"),
        ("method.margn=0.3", "rts has no setting 'margn', did you mean 'margin'"),
        ("method.name=rst", "no method 'rst', did you mean 'rts'"),
        ("name=..", "name: .* should match pattern"),
        ("method.degrees=2", "degrees"),
        ("backbone.name=iresnet51", "no backbone 'iresnet51', did you mean 'iresnet"),
        ("optim.milestones=[40]", "before the end"),
        ("optim.milestones=[9,3]", r"^casia_rts: optim\.milestones .* must rise"),
        ("optim.lr", "key=value"),
        ("seed.deep=1", "no fields below"),
        ("optim.epochs=[", "valid YAML"),
        ("data.train=${NO_SUCH_VARIABLE} metod=rts", "unknown key 'metod', did you mean 'method'"),
        ('data={"train":"faces","name":"mine"}', r"data\.terms: Field required"),
    ],
)
def test_a_wrong_override_is_a_clear_error(override, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("casia_rts", override.split(" "))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "data.train=${NO_SUCH_VARIABLE}",
            r"data\.train: the environment variable NO_SUCH_VARIABLE is not set",
        ),
        ("backbone.weights=???", r"^backbone\.weights: still to be given$"),
        # Other images need their own name and terms.
        (
            "data.train=faces",
            r"^data\.name: .*data\.name=my faces.*; data\.terms: .*data\.terms=for internal use",
        ),
        ("data.unlabeled=faces teacher.models=a.onnx", r"^data\.name: .*; data\.terms: "),
        (f"data.train=faces {NAME}", r"^data\.terms: state"),
        (f"data.train=[faces,more] {TERMS} optim.lr=0.1", r"^data\.name: name these images[^;]*$"),
    ],
)
def test_what_is_still_to_be_given_is_shown_and_asked_for_when_training_starts(tmp_path, overrides, message):
    recipe = load_recipe("casia_rts", overrides.split(" "))
    assert "???" in recipe.to_yaml() or "${" in recipe.to_yaml()
    with pytest.raises(RecipeError, match=message):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", r"broken\.yaml"),
        ("name: [unclosed", r"broken\.yaml"),
        ("optim: {lr: 0.1, epochs: 3, lr: 0.2}", r"'lr' is given twice; keep one .*line 1"),
        ("? [a]\n: 1", "unhashable key"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path, text, message):
    (tmp_path / "broken.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        load_recipe(tmp_path / "broken.yaml")


def test_endless_keys_and_problems_are_cut(tmp_path):
    recipe = tmp_path / "long.yaml"
    unknown = "\n".join(f"optim{number}: 1" for number in range(3000))
    recipe.write_text(f"base: casia_rts\n{unknown}\n? {'k' * 9000}\n: 1\n")
    with pytest.raises(RecipeError, match=r"unknown key 'optim0'.*; and 2,991 more$") as caught:
        load_recipe(str(recipe))
    assert len(str(caught.value)) < 1000
    with pytest.raises(RecipeError, match="recipes have no fields that deep"):
        load_recipe("casia_rts", [f"data{'.a' * 20_000}=1"])


def test_overrides_reach_nested_fields_and_keep_the_rest():
    before, after = load_recipe("casia_rts"), load_recipe("casia_rts", ["optim.lr=0.05", "data.workers=2"])
    assert (after.optim.lr, after.data.workers) == (0.05, 2)
    assert changed_fields(before, after) == ["optim.lr"]  # the number of workers changes no weight
    other = load_recipe("casia_rts", ["data.train=faces", NAME, TERMS]).data
    assert (other.train, other.name, other.terms) == (["faces"], "mine", "none")
    whole = load_recipe("casia_rts", ["data={train: faces, name: mine, terms: none}"]).data
    assert (whole.train, whole.name) == (["faces"], "mine")
    assert load_recipe("casia_rts", ["data.train=datasets/faces_webface_112x112"]).data == before.data


def test_fields_of_the_command_line_cover_the_methods_file_in_any_order():
    for overrides in (["optim.epochs=3", "method=pfe"], ["method=pfe", "optim.epochs=3"]):
        recipe = load_recipe("casia", overrides)
        settings = (recipe.optim.epochs, recipe.optim.lr, recipe.backbone.weights)
        assert settings == (3, 0.01, "runs/casia_arcface")
    assert load_recipe("casia", ["name=mine", "method=pfe"]).name == "mine"
    assert load_recipe("casia", ["method=dul", "method=rts"]) == load_recipe("casia_rts")
    for override in ("method=dul", "method.name=dul", "method={name: dul}"):
        recipe = load_recipe("casia_rts", [override])
        assert (recipe.name, recipe.method) == ("casia_rts_dul", load_recipe("casia_dul").method)
    tuned = load_recipe("casia_rts", ["method=rts", "method.kl_weight=1"])
    assert changed_fields(load_recipe("casia_rts"), tuned) == ["method.kl_weight"]


def test_a_file_covers_its_base_field_by_field(write):
    mine = load_recipe(write("mine.yaml", base="casia_rts", optim={"lr": 0.05, "milestones": [10]}))
    assert changed_fields(load_recipe("casia_rts"), mine) == ["name", "optim.lr", "optim.milestones"]
    assert (mine.name, mine.optim.lr, mine.optim.milestones) == ("mine", 0.05, [10])
    assert load_recipe(write("mine.yaml", base="casia_rts", name="other")).name == "other"
    # Other images than the base's are taken with their name and terms.
    data = {"train": "faces", "name": "my faces", "terms": "internal"}
    images = load_recipe(write("mine.yaml", base="casia_rts", data=data)).data
    assert (images.train, images.name, images.workers) == (["faces"], "my faces", 8)
    images = load_recipe(write("mine.yaml", base="casia_rts", data={"train": "faces", "name": "mine"})).data
    assert (images.name, images.terms) == ("mine", "???")


def test_a_file_covers_the_file_of_the_method_that_it_chooses(write):
    mine = load_recipe(write("mine.yaml", base="faces_small", method="pfe", optim={"epochs": 3}))
    assert (mine.name, mine.optim.epochs, mine.optim.lr) == ("mine", 3, 0.01)
    assert mine.backbone.weights == "runs/faces_small_arcface"
    mine = load_recipe(write("mine.yaml", base="faces_small", method={"name": "tempnet", "tau_max": 0.1}))
    assert (mine.method["rho"], mine.method["tau_max"], mine.data.augmentation.change) == (5, 0.1, 0.5)


def test_a_base_may_be_a_file_beside_the_recipe_wherever_it_is_read_from(write, tmp_path, monkeypatch):
    lab = {**yaml.safe_load((SHIPPED / "casia.yaml").read_text()), "name": "lab", "seed": 7}
    write("common/lab.yaml", **lab | {"method": {"logit_scale": 48}})
    mine = write("runs/mine.yaml", base="../common/lab.yaml", method="cosface")
    monkeypatch.chdir(tmp_path)
    for path in (mine, mine.relative_to(tmp_path)):
        recipe = load_recipe(path)
        assert (recipe.seed, recipe.method["logit_scale"], recipe.method["margin"]) == (7, 48, 0.35)
    # A method on somebody's own base starts from that base's runs.
    assert load_recipe(tmp_path / "common/lab.yaml", ["method=pfe"]).backbone.weights == "runs/lab_arcface"


def test_a_recipe_without_a_base_is_taken_as_it_is_written(write):
    fields = {
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
        (
            {"base": "mine.yaml"},
            r"mine\.yaml: base: \S*mine\.yaml: has a base itself, 'mine\.yaml', and may not",
        ),
        ({"base": "casia_rts_8gpu"}, "casia_rts_8gpu: has a base itself, 'casia_rts', and may not be one"),
        (
            {"base": ["casia"]},
            r"mine\.yaml: base: the name of a recipe that ships or the path of a YAML file",
        ),
        ({"base": None}, r"mine\.yaml: base: the name of a recipe"),
        ({"base": ""}, "no recipe ''"),
        ({"base": "casia", "method": "rst"}, "no method 'rst', did you mean 'rts'"),
        ({"base": "casia_rts", "optim": {"lrr": 1}}, r"casia_rts: unknown key 'optim\.lrr', did you mean"),
        ({"base": "casia_rts", "optim": 3}, r"mine\.yaml: based on casia_rts: optim"),
        ({"base": "casia_rts", "data": None}, r"data: Input should be"),
        ({"name": "x"}, r"mine\.yaml"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(write, fields, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write("folder/mine.yaml", **fields))


UNLABELED = "data.unlabeled=some data.name=mine data.terms=none"
NON_FACES = "data.non_faces=[some,more] data.name=mine data.terms=none"
# A quality of teachers' embeddings, and of what else tells of them.
TEACHERS = "teacher={models: t.onnx, method_embedding: teachers, expected_weight: 3, qualities: [{model: q.onnx}]}"
COSINES = (TEACHERS, "method={name: crfiqa, target: cosine}", "data.augmentation.views=2")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("method.name=supcon data.per_identity=3", r"of 16 must be a multiple of data\.per_identity 3"),
        ("data.augmentation.views=1 method.name=supcon", "supcon compares 2 views of an image: set"),
        ("method=pfe backbone.weights=null", "pfe trains heads on a network that is trained already"),
        ("backbone.adapt=0.1", "adapt changes an embedding that is trained already"),
        ("optim.epochs=0 optim.milestones=[]", "optim.epochs 0 keeps the initial weights"),
        ("data.holdout_identities=1.5", "1.5 is neither a whole number of identities nor a share"),
        ("backbone.frozen=true", r"set backbone\.weights"),
        ("backbone.frozen=true backbone.weights=x method.name=arcface", "arcface has nothing beside"),
        ("backbone.frozen=true backbone.weights=x method.name=supcon method.projection=7", "supcon has nothing beside"),
        (("backbone.frozen=true", "backbone.weights=x", "teacher={models: t.onnx, method: 0}"), "as a teacher does"),
        ("backbone.embedding=false", "leaves the method's heads to learn"),
        ("backbone.embedding=false teacher.models=t.onnx", "leaves the method's heads to learn"),
        (("backbone.embedding=false", COSINES[0], "method.name=arcface"), "arcface has no head"),
        ((*COSINES, "method.target=ratio"), "is about what crfiqa learns"),
        ((*COSINES, "method={name: rts}"), "is about what crfiqa learns"),
        ((*COSINES, "data.augmentation.views=null"), r"set data\.augmentation\.views, such as 4"),
        ("teacher.models=t.onnx teacher.target=view", r"set data\.augmentation\.views, such as 4"),
        ((*COSINES, "teacher.expected_weight=null"), "tell what cosines to expect"),
        (UNLABELED, "set teacher.models"),
        (f"{UNLABELED} teacher.models=t.onnx method.name=supcon data.unlabeled_share=0.25", "one view of each image"),
        (f"{UNLABELED} teacher.models=t.onnx compute.accumulate=2", "compute.accumulate 1"),
        (f"{UNLABELED} teacher.models=t.onnx data.unlabeled_share=0.01", "leave room for one image without"),
        (f"{NON_FACES} data.non_face_share=0.01", r"data\.non_face_share 0.01 of optim.batch_size 16 must leave room"),
        (f"{NON_FACES} data.non_face_share=0.06", "room for one image of each of the 2"),
        (f"{NON_FACES} compute.accumulate=2", r"compute\.accumulate 1"),
        ("teacher.models=m.onnx teacher.cosin=3", r"teacher\.cosin.*teacher\.cosine"),
    ],
)
def test_sections_that_do_not_fit_together_are_refused(make_recipe, overrides, message):
    make_recipe(*COSINES)
    with pytest.raises(RecipeError, match=message):
        make_recipe(*(overrides.split() if isinstance(overrides, str) else overrides))


def test_a_run_needs_nothing_that_its_recipe_was_made_of(make_recipe, write, tmp_path):
    base = tmp_path / "tiny.yaml"
    base.write_text(make_recipe("optim.epochs=0.25", "optim.milestones=[]").to_yaml())
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


def test_the_command_shows_the_complete_recipe_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("train", "casia", "method=pfe", "optim.lr=0.02", "--show") == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert load_recipe(shown) == load_recipe("casia_pfe", ["optim.lr=0.02"])
    assert [path.name for path in tmp_path.iterdir()] == ["shown.yaml"]
