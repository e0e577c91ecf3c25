"""What every command pays before it does anything: the modules imported to print a help text."""

import os
import subprocess
import sys

import pytest

import facerts
from facerts.version import __version__
from tests.command import run

HEAVY = {"cv2", "numpy", "onnxruntime", "pydantic", "torch", "yaml", "matplotlib", "pyarrow", "fastapi"}
# Modules of facerts; the commands themselves are half of them.
BUDGET = 42

PROBE = """
import atexit, sys
atexit.register(lambda: print("---", *sys.modules, sep="\\n", file=sys.stderr))
sys.argv = ["facerts", *{arguments!r}]
from facerts.cli import main
main()
"""


def imported(*arguments, **variables):
    """What a command prints, and the modules that it imports."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    return ran.stdout, set(ran.stderr.partition("---\n")[2].split())


def packages(modules):
    return {module.split(".")[0] for module in modules}


def test_nothing_heavy_is_imported_before_a_command_works():
    # Typer reads the options of a command with pydantic.
    for arguments, allowed in ((["--help"], set()), (["score", "--help"], {"pydantic"})):
        _, modules = imported(*arguments)
        assert packages(modules) & HEAVY <= allowed
        assert 0 < sum(module.startswith("facerts.") for module in modules) <= BUDGET


def test_the_version_is_printed(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"facerts {__version__}\n"


def test_public_names_are_imported_when_they_are_used():
    assert dir(facerts) == facerts.__all__
    assert all(getattr(facerts, name) is not None for name in facerts.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        facerts.lode  # noqa: B018


def test_a_shell_completes_commands_and_options_quickly():
    for words, expected in (("facerts s", {"score", "serve"}), ("facerts score --overw", {"--overwrite"})):
        place = str(words.count(" "))
        printed, modules = imported(_FACERTS_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
        assert set(printed.split()) == expected
        assert packages(modules) & HEAVY <= {"pydantic"}
