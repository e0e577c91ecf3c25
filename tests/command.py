"""The command line as a shell would call it, in this process or another."""

import json
import os
import resource
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from facerts.cli import main
from facerts.cli.ending import DEBUG_VARIABLE

ROOT = Path(__file__).parents[1]


def run(*arguments):
    """The command's exit code."""
    sys.argv = ["facerts", *map(str, arguments)]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def printed_json(capsys, *arguments, status=0):
    """What a command prints with ``--json``, which is added to its arguments, where it ends with a status."""
    capsys.readouterr()
    code = run(*arguments, "--json")
    captured = capsys.readouterr()
    assert code == status, captured.err
    return json.loads(captured.out)


def refused(capsys, *arguments):
    """The sentence with which a command ends that cannot be done, without line breaks."""
    capsys.readouterr()
    code = run(*arguments)
    error = capsys.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    return " ".join(error.split())


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def no_larger_files(size):
    """Let this process and those that it starts write no file beyond a size in bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run_process(*arguments):
    """Run a command in a process, until that and every process that it started have ended."""
    return subprocess.run(
        [sys.executable, "-m", "facerts", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, DEBUG_VARIABLE: ""},
    )
