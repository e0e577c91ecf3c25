"""Where a run computes, and in which precision: what "auto" means on each kind of device."""

import pytest
import torch

from facerts.nn.device import choose_device, choose_precision
from facerts.training.learner import Learner
from facerts.training.loop import train

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def use_cpu(monkeypatch, **capabilities):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, **capabilities})


@pytest.mark.parametrize(("there", "expected"), [(True, "cuda"), (False, "cpu")])
def test_a_gpu_is_used_if_there_is_one(monkeypatch, there, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert choose_device("auto").type == expected
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, "fp32"),
        ({"avx512_f": True}, "fp32"),
        ({"avx512_bf16": False, "amx_bf16": False}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
    ],
)
def test_a_cpu_trains_in_bf16_only_if_it_has_units_for_it(monkeypatch, make_recipe, capabilities, expected):
    use_cpu(monkeypatch, **capabilities)
    assert choose_precision("auto", CPU) == expected
    assert [choose_precision(name, CPU) for name in ("fp32", "bf16", "fp16")] == ["fp32", "bf16", "fp16"]
    dtype = Learner(make_recipe("compute.precision=auto"), identities=4).autocast
    assert dtype is (torch.bfloat16 if expected == "bf16" else None)


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_that_only_imitates_bf16_trains_in_fp32(monkeypatch, supported, expected):
    # A GPU without units for bf16 supports it if imitation counts.
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or supported
    )
    assert choose_precision("auto", GPU) == expected


@pytest.mark.parametrize(("units", "warned"), [(True, False), (False, True)])
def test_a_run_says_at_its_start_that_bf16_is_only_imitated(monkeypatch, capsys, tmp_path, make_recipe, units, warned):
    use_cpu(monkeypatch, amx_bf16=units)
    recipe = make_recipe("compute.precision=bf16", "optim.epochs=0.25", "optim.milestones=[]")
    train(recipe, tmp_path / "run")
    shown = "".join(capsys.readouterr())
    assert "1 thread, bf16" in shown
    assert ("only imitates: compute.precision=fp32" in shown) == warned
