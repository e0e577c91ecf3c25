"""What many rooms' tests share: drawn faces, a small trained run, the real data where it is there."""

import atexit
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

# Two test processes on two cores: more threads than that only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests that download do so from a server of their own.
os.environ["FACERTS_OFFLINE"] = "1"
# What was pulled or measured on this machine must not change what is tested.
os.environ["FACERTS_CACHE"] = tempfile.mkdtemp(prefix="facerts-tests-")
os.environ["XDG_CONFIG_HOME"] = os.environ["FACERTS_CACHE"] + "-config"

from hypothesis import settings

from facerts.datasets import PairBenchmark, open_source, pairs_from_identities
from facerts.datasets.pair_layouts import save_bin
from facerts.datasets.synthetic import draw_face, write_non_faces, write_synthetic_faces
from facerts.embedding import OnnxModel
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.metrics.pair_intervals import share_interval, verification_intervals
from facerts.metrics.paired import compare_scores
from tests.browser import browser, complaints, page, requested
from tests.foreign import write_description, write_embedder
from tests.postgres_server import Server, postgres_server

atexit.register(shutil.rmtree, os.environ["FACERTS_CACHE"], ignore_errors=True)

# No test may fail for want of speed.
settings.register_profile("facerts", deadline=None)
settings.load_profile("facerts")

SHARED = Path(__file__).parents[2] / "shared"
SLOW_FIXTURES = {"browser", "facerts_data", "reference_models"}
__all__ = ["browser", "complaints", "page", "requested"]


def pytest_sessionfinish() -> None:
    """Free the tensors that loaders shared while PyTorch can: at the end of a process it complains of each."""
    if reductions := sys.modules.get("torch.multiprocessing.reductions"):
        reductions.shared_cache.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and put files with some first, so that processes to which files are dealt end together.

    Tests of real data and in a browser are slow, besides those that are marked themselves.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if SLOW_FIXTURES & fixtures:
            item.add_marker(pytest.mark.slow)
        if "browser" in fixtures:
            item.add_marker(pytest.mark.browser)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@contextmanager
def of_300_replicates() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for measure in (compare_scores, share_interval, verification_intervals):
            patch.setitem(measure.__kwdefaults__, "replicates", 300)
        yield


@pytest.fixture(scope="module")
def few_replicates() -> Iterator[None]:
    """Bootstraps have 300 replicates, not 1,000, for tests to which the width of an interval is no matter."""
    with of_300_replicates():
        yield


@pytest.fixture(scope="module")
def few_changes() -> Iterator[None]:
    """The corruption benchmark has two kinds of change, one held out, not 43."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run_corruptions.__kwdefaults__, "kinds", ("blur", "sepia"))
        yield


@pytest.fixture
def passed(monkeypatch) -> Counter[str]:
    """Number of crops that passed through each model."""
    counts: Counter[str] = Counter()
    tensors = OnnxModel.tensors

    def counting(self: OnnxModel, crops: np.ndarray) -> dict[str, np.ndarray]:
        counts[self.name] += len(crops)
        return tensors(self, crops)

    monkeypatch.setattr(OnnxModel, "tensors", counting)
    return counts


@pytest.fixture(scope="session")
def drawn_faces(tmp_path_factory) -> Path:
    """A folder by identity: 8 people, 8 images each."""
    folder = tmp_path_factory.mktemp("drawn") / "faces"
    write_synthetic_faces(folder, identities=8, images=8, seed=3)
    return folder


@pytest.fixture(scope="session")
def non_faces(tmp_path_factory) -> Path:
    """A flat folder of 24 images without faces."""
    folder = tmp_path_factory.mktemp("drawn") / "things"
    write_non_faces(folder, images=24)
    return folder


@pytest.fixture(scope="session")
def crops() -> NDArray[np.uint8]:
    """Twelve drawn crops."""
    return np.stack([draw_face(identity, image) for identity in range(4) for image in range(3)])


def write_pairs(benchmark: PairBenchmark, path: Path) -> Path:
    """A .csv list of pairs of files by person (``person_0000/0000.jpg``), beside their folders."""
    lines = ["first,second,same,fold,first_subject,second_subject"]
    for (first, second), same, fold in zip(benchmark.pairs, benchmark.same, benchmark.folds, strict=True):
        keys = [benchmark.images.key(int(row)) for row in (first, second)]
        people = [key.split("/")[0] for key in keys]
        lines.append(f"{','.join(keys)},{int(same)},{fold},{','.join(people)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def shared_folder(variable: str, name: str, holds: str) -> Path:
    """A folder of real data: where the environment says, or below ../shared.

    Without it a test is skipped, and fails where FACERTS_REQUIRE_REAL_DATA=1 says that the data is there.
    """
    folder = Path(os.environ.get(variable, SHARED / name))
    if not (folder / holds).exists():
        missing = pytest.fail if os.environ.get("FACERTS_REQUIRE_REAL_DATA") == "1" else pytest.skip
        missing(f"{folder} does not have {holds}; set {variable} to a folder that has it")
    return folder


@pytest.fixture(scope="session")
def facerts_data() -> Path:
    """The real images: FACERTS_DATA, or ../shared/data."""
    return shared_folder("FACERTS_DATA", "data", "faces")


@pytest.fixture(scope="session")
def reference_models() -> Path:
    """The reference models beside the real images: FACERTS_MODELS, or ../shared/models."""
    return shared_folder("FACERTS_MODELS", "models", "mobilefacenet.onnx")


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A small embedder whose quality is the brightness of a crop, to be read only."""
    return write_description(
        write_embedder(tmp_path_factory.mktemp("model") / "model.onnx", quality=True), quality="output:bright"
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server with pgvector in the database ``postgres``, which tests fill with galleries of their own names."""
    with postgres_server() as server:
        server.execute("CREATE EXTENSION vector")
        yield server


@pytest.fixture(scope="session")
def trained_run(drawn_faces, tmp_path_factory) -> Path:
    """The folder of a short RTS run on the drawn faces, which ``tests.data.train_short`` has trained."""
    pytest.importorskip("torch")
    from facerts.training.checkpoint import FILE, read_file, save_checkpoint
    from tests.data.train_short import CHECKPOINT, short_recipe

    folder = tmp_path_factory.mktemp("trained") / "run"
    save_checkpoint(folder / FILE, short_recipe(drawn_faces), read_file(CHECKPOINT))
    return folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Path:
    """That run as ONNX."""
    stored = Path(__file__).parent / "data" / "short.onnx"
    return Path(shutil.copy(stored, tmp_path_factory.mktemp("exported")))


@pytest.fixture(scope="session")
def benchmark_folder(tmp_path_factory) -> Path:
    """200 pairs of 30 people, as people.bin and as a list beside the people."""
    folder = tmp_path_factory.mktemp("benchmark")
    write_synthetic_faces(folder / "people", identities=30, images=4, seed=11)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=100, impostors=100, seed=2)
    save_bin(pairs, folder / "people.bin")
    write_pairs(pairs, folder / "people" / "named.csv")
    return folder


@pytest.fixture(scope="session")
def named(benchmark_folder) -> Path:
    """The same pairs as a list that names the people, so that all pairs of the images can be measured."""
    return benchmark_folder / "people" / "named.csv"


@pytest.fixture(scope="session")
def evaluated(named, benchmark_folder, drawn_faces, non_faces, tmp_path_factory):
    """Result folders of a plain embedder, of "poor" with far more noise, and of two seeds, "one" and "two"."""
    # Their module reads this one.
    from tests.evaluation.conftest import Plain, Seeded

    home, people = tmp_path_factory.mktemp("evaluated"), str(benchmark_folder / "people")
    options = EvaluationOptions(keep_crops=False, flip=False, fmr=0.05)
    models = [Plain(), Seeded("poor", 9, 0.5), Seeded("seeded", 1), Seeded("seeded", 2)]
    folders = {key: home / key for key in ("plain", "poor", "one", "two")}
    with of_300_replicates():
        for model, out in zip(models, folders.values(), strict=True):
            run_pairs(model, ["verification", "reject"], [named, benchmark_folder / "people.bin"], out, options)
            run_ood(model, [str(drawn_faces), people], [str(non_faces)], out, options)
            run_corruptions(model, [people], out, options, images=12, kinds=("blur", "sepia"))
    return folders
