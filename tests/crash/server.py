"""Runs commands of facerts in forked children, whose changes of files fail as ``faults.c`` says.

A child ends as the command would: threads are joined, and what is registered for the end is run.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module

import typer

from facerts.cli import app

# A command that has not ended by then never does.
PATIENCE_S = 120.0


def main():
    for module in sys.argv[1:]:
        import_module(module)
    # Built once, which takes longer than most commands.
    built = typer.main.get_command(app.build_app())
    app.build_app = lambda: built
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            run(request, write)
        os.close(write)
        status = wait(child)
        with os.fdopen(read) as pipe:
            print(json.dumps([status, pipe.read()]), flush=True)


def run(request, counted):
    """The command of a request, in a child."""
    os.setpgid(0, 0)
    os.environ |= request["environment"]
    os.chdir(request["folder"])
    for stream, path in ((sys.stdout, request["out"]), (sys.stderr, request["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    if request["setup"]:
        getattr(import_module("tests.crash.setups"), request["setup"])()
    sys.argv = ["facerts", *request["arguments"]]
    faults = ctypes.CDLL(None)
    faults.faults_arm(os.fsencode(request["folder"]), ctypes.c_long(request["at"]), request["mode"])
    status = 0
    try:
        app.main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    # What Python does at its end, but for taking itself apart, which takes long.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(counted, str(faults.faults_count()).encode())
    os._exit(status)


def wait(child):
    """The exit status of a child; that of the signal, negative, which ended it; 1,000 if it had to be ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1000


if __name__ == "__main__":
    main()
