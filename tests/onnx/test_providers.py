import json

import numpy as np
import onnxruntime
import pytest

from facerts.detection import open_detector
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.onnx.providers import (
    CPU,
    MeasuredProvider,
    automatic_order,
    full_names,
    measured_file,
    measured_providers,
    store_measured,
    usual_batch_size,
)
from facerts.onnx.session import open_session
from facerts.scoring import load, provider_times
from facerts.scoring.provider_times import measure_providers
from tests.detectors import write_yunet
from tests.foreign import write_description, write_embedder

CUDA, OPENVINO, COREML, ROCM = (f"{name}ExecutionProvider" for name in ("CUDA", "OpenVINO", "CoreML", "ROCM"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("facerts.onnx.session._passed_over", set())


@pytest.fixture
def accelerators(monkeypatch):
    """An ONNX Runtime with three more providers, none of which starts."""
    names = [OPENVINO, COREML, CUDA, "AzureExecutionProvider", CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    real = onnxruntime.InferenceSession

    def without_accelerators(model, options, **_):
        return real(model, options, providers=[CPU])

    monkeypatch.setattr(onnxruntime, "InferenceSession", without_accelerators)


def _measured(provider, crop, photo=None, *, exact=True):
    times = {1: 3 * crop, 16: crop, 64: 2 * crop}
    return MeasuredProvider(provider=provider, ms_per_crop=times, ms_per_photo=photo, cosine=1, exact=exact)


def test_providers_have_short_names(accelerators):
    assert full_names(["CUDA", "coreml", CPU]) == [CUDA, COREML, CPU]
    with pytest.raises(ModelError, match=r"no ROCMExecutionProvider here; it has cuda, coreml, openvino, cpu"):
        full_names(["rocm"])
    with pytest.raises(ModelError, match="no opnvino here, did you mean 'openvino'"):
        full_names(["opnvino"])


def test_without_measurements_the_order_is_fixed(accelerators):
    assert automatic_order() == automatic_order(photos=True) == [CUDA, COREML, OPENVINO, CPU]
    assert (usual_batch_size(CPU), usual_batch_size(CUDA)) == (16, 64)


def test_measurements_decide_the_order_and_the_batch_size(accelerators, monkeypatch):
    found = [
        _measured(CUDA, 2, 30),
        _measured(OPENVINO, 1, 60),
        # Only its embeddings are wrong.
        _measured(COREML, 0.1, 1, exact=False),
        _measured(CPU, 4, 50),
    ]
    store_measured(found, "theirs")
    assert automatic_order() == [OPENVINO, CUDA, CPU]
    assert automatic_order(photos=True) == [COREML, CUDA, CPU]
    assert usual_batch_size(CUDA) == 16
    # Another ONNX Runtime may be faster, or have others.
    monkeypatch.setattr(onnxruntime, "__version__", "9.9")
    assert measured_providers() == ()
    assert automatic_order() == [CUDA, COREML, OPENVINO, CPU]


def test_broken_measurements_are_an_error():
    measured_file().parent.mkdir()
    measured_file().write_text(json.dumps({"providers": "fast"}))
    with pytest.raises(ModelError, match=r"providers-.*\.json: .*delete it, and run facerts doctor --bench"):
        automatic_order()


def test_auto_says_once_what_it_passes_over(tmp_path, accelerators, capfd):
    model = write_embedder(tmp_path / "model.onnx")
    for _ in range(2):
        assert open_session(model, providers=["auto"]).get_providers() == [CPU]
    said = capfd.readouterr().err
    for name in (CUDA, COREML, OPENVINO):
        assert said.count(f"could not start {name} here") == 1
    assert "running on CPUExecutionProvider instead" in said
    # A file that is no model is not their fault.
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(ModelError, match="cannot load it"):
        open_session(tmp_path / "text.onnx", providers=["auto"])
    assert capfd.readouterr().err == ""
    for named in ("cuda", ["cuda"], [CUDA, CPU]):
        with pytest.raises(ModelError, match=f"could not start {CUDA} here .* the provider auto is one"):
            open_session(model, providers=named)
    with pytest.raises(ModelError, match=r"cannot load it \((?!.*provider auto)"):
        open_session(tmp_path / "text.onnx", providers=["cuda"])
    for named in ("AUTO", "cpu", ["CPU"]):
        assert open_session(model, providers=named).get_providers() == [CPU]
    with pytest.raises(ModelError, match="auto comes first"):
        open_session(model, providers=["cpu", "auto"])


def test_auto_takes_the_first_of_the_names_after_it_that_starts(tmp_path, accelerators, capfd):
    model = write_embedder(tmp_path / "model.onnx")
    assert open_session(model, providers=["auto", "rocm", "cuda", CPU, COREML]).get_providers() == [CPU]
    (said,) = capfd.readouterr().err.splitlines()
    assert f"no {ROCM} here" in said
    assert f"could not start {CUDA} here" in said
    assert COREML not in said


@pytest.mark.slow
def test_a_provider_that_computes_something_else_is_not_chosen(tmp_path, monkeypatch):
    write_description(write_embedder(tmp_path / "theirs.onnx"))
    write_description(write_embedder(tmp_path / "wrong.onnx", seed=5))
    yunet, deaf = write_yunet(tmp_path / "yunet.onnx"), write_yunet(tmp_path / "deaf.onnx", level=-9)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [OPENVINO, COREML, CUDA, ROCM, CPU])

    def load_for(model, *, providers, **options):
        if providers == [CUDA]:
            raise ModelError("out of memory")
        return load_embedder(tmp_path / "wrong.onnx" if providers == [OPENVINO] else model, **options)

    def detector_for(model, *, providers, **options):
        return open_detector(deaf if providers == [ROCM] else model, threshold=0.1, **options)

    monkeypatch.setattr(provider_times, "load_embedder", load_for)
    monkeypatch.setattr(provider_times, "open_detector", detector_for)
    times = measure_providers(tmp_path / "theirs.onnx", detector=yunet, rounds=1)
    assert times.model == "theirs"
    assert times.problems[CUDA] == "out of memory"
    by_name = {found.provider: found for found in times.measured}
    exact = {COREML: True, OPENVINO: False, ROCM: True, CPU: True}
    assert {name: found.exact for name, found in by_name.items()} == exact
    assert by_name[OPENVINO].cosine < 0.99 < by_name[COREML].cosine
    assert "something else than the CPU" in times.problems[OPENVINO]
    assert "finds other faces than the CPU" in times.problems[ROCM]
    assert set(by_name[CPU].ms_per_crop) == {1, 16, 64}
    assert {name for name, found in by_name.items() if found.ms_per_photo is None} == {ROCM}


def test_the_best_batch_size_is_used(tmp_path):
    write_description(write_embedder(tmp_path / "m.onnx"))
    best = MeasuredProvider(provider=CPU, ms_per_crop={1: 2, 48: 1}, cosine=1, exact=True)
    assert load(tmp_path / "m.onnx", detector="none").recognizer.opened.batch_size == 16
    store_measured([best], "m")
    assert load(tmp_path / "m.onnx", detector="none").recognizer.opened.batch_size == 48
    assert load(tmp_path / "m.onnx", detector="none", batch_size=5).recognizer.opened.batch_size == 5
    crops = np.zeros((3, 112, 112, 3), np.uint8)
    assert len(load(tmp_path / "m.onnx", detector="none").embed(crops).embedding) == 3
