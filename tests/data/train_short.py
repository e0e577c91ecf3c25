"""Makes the trained run that tests share: ``python -m tests.data.train_short`` writes the files beside this one.

It has to be run again when checkpoints, recipes or descriptions of models change. It takes some ten seconds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.training.checkpoint import FILE, read_file, save_checkpoint
from facerts.training.export import export_run
from facerts.training.loop import train
from facerts.training.recipe import Recipe

CHECKPOINT = Path(__file__).parent / "short.pt"
MODEL = CHECKPOINT.with_suffix(".onnx")
FIELDS = {
    "name": "short",
    "seed": 1,
    "data": {"name": "drawn", "terms": "none", "train": "faces", "workers": 0},
    "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 16},
    "method": {"name": "rts", "logit_scale": 16, "margin": 0.2},
    # Enough steps for the running statistics of BatchNorm to be those of the network.
    "optim": {"epochs": 20, "batch_size": 16, "lr": 0.05, "milestones": [14]},
    "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
    "logging": {"every_steps": 8, "checkpoint_steps": 100},
}


def short_recipe(faces: str | Path) -> Recipe:
    """The recipe of the run, on a folder of faces."""
    recipe = Recipe.model_validate(FIELDS)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"train": [str(faces)]})})


def main() -> None:
    with TemporaryDirectory() as folder:
        faces, run = Path(folder) / "faces", Path(folder) / "run"
        write_synthetic_faces(faces, identities=8, images=8, seed=3)
        train(short_recipe(faces), run)
        export_run(run, MODEL)
        save_checkpoint(CHECKPOINT, short_recipe("faces"), read_file(run / FILE))


if __name__ == "__main__":
    main()
