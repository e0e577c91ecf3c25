"""Settings: where they stand, which place wins, and what every command says in its help."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from facerts.cli.app import build_app
from facerts.cli.option_groups import _as_typed
from facerts.cli.settings import OPTION, keys, read_settings, user_file
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_png
from tests.cli.test_cli import leaves
from tests.command import printed_json, refused, run


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder of a project, and a user without settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    # What commands tell other functions by variables is undone.
    for name in ("FACERTS_OFFLINE", "FACERTS_CACHE"):
        monkeypatch.setenv(name, os.environ[name])
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def options_of(command: Any) -> list[Any]:
    own = ("help", "install_completion", "show_completion")
    return [p for p in command.params if p.param_type_name == "option" and p.name not in own]


def every_command() -> dict[str, Any]:
    root = get_command(build_app())
    found = {"": root}
    for names in leaves(root):
        command: Any = root
        for name in names:
            command = command.commands[name]
        found[" ".join(names)] = command
    return found


def test_there_are_few_options_and_none_says_what_another_says():
    counts = {name: len(options_of(command)) for name, command in every_command().items()}
    assert sum(counts.values()) <= 300
    assert max(counts.values()) <= 18, counts
    for name, command in every_command().items():
        options = options_of(command)
        texts = Counter(option.help for option in options)
        assert max(texts.values(), default=1) == 1, (name, texts)
        # A setting is no option of the same name, but for the main question of a command.
        main = {"recognizer", "quality", "keep", "min_quality", "fmr"}
        assert not {option.name for option in options} & {*keys()} - main, name


def test_help_is_short_and_names_no_types():
    app = build_app()
    for name in every_command():
        shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"}).output
        assert len(shown.splitlines()) <= 60, name
        assert not re.search(r"<\w+>|Args:|Attributes:", shown), name
        assert ("Common options" in shown) == ("--json" in shown or OPTION in shown), name


def test_the_command_line_is_above_variables_the_project_and_the_user(place, monkeypatch):
    assert read_settings().threads is None
    for threads, write in enumerate(
        (
            lambda text: run("config", "set", "threads", text),
            lambda text: run("config", "set", "threads", text, "--project"),
            lambda text: monkeypatch.setenv("FACERTS_THREADS", text),
        ),
        start=1,
    ):
        write(str(threads))
        assert read_settings().threads == threads
    assert read_settings(["threads=4"]).threads == 4
    # Of the least quality and a share of the faces, the higher place decides.
    assert run("config", "set", "keep", "0.9") == 0
    settings = read_settings(["min_quality=0.2"])
    assert (settings.keep, settings.min_quality) == (None, 0.2)


def test_settings_are_listed_with_where_they_stand(place, capsys, monkeypatch):
    assert run("config", "set", "provider", "auto,cuda") == 0
    monkeypatch.setenv("FACERTS_SERVE_MAX_FACES", "7")
    listed = {row["key"]: row for row in printed_json(capsys, "config", "list")["settings"]}
    assert [*listed] == [*keys()]
    assert (listed["provider"]["value"], listed["provider"]["from"]) == ("auto,cuda", str(user_file()))
    assert (listed["serve.max_faces"]["value"], listed["serve.max_faces"]["from"]) == (
        "7",
        "FACERTS_SERVE_MAX_FACES",
    )
    assert (listed["det_size"]["value"], listed["det_size"]["from"]) == ("", "default")
    assert run("config", "get", "provider") == 0
    assert capsys.readouterr().out == "auto,cuda\n"
    assert run("config", "get", "det_threshold") == 0
    shown = capsys.readouterr()
    assert shown.out == "\n"
    assert "by default 0.6 for YuNet" in " ".join(shown.err.split())
    doctor = {row["key"]: row["from"] for row in printed_json(capsys, "doctor", OPTION, "threads=2")["settings"]}
    assert (doctor["threads"], doctor["provider"]) == (OPTION, str(user_file()))


def test_a_file_keeps_its_comments_and_tables(place):
    file = Path("facerts.toml")
    file.write_text("# ours\nthreads = 2  # cores\n[serve]\n# seconds\ntimeout = 9\n")
    for command in (("threads", "3"), ("serve.timeout", "8"), ("det_size", "full"), ("serve.queue", "4")):
        assert run("config", "set", *command, "--project") == 0
    assert file.read_text().splitlines() == [
        *('det_size = "full"', "threads = 3", "# ours", "[serve]", "queue = 4", "timeout = 8.0", "# seconds"),
    ]
    settings = read_settings()
    assert (settings.threads, settings.det_size, settings.serve.timeout, settings.serve.queue) == (
        3,
        "full",
        8,
        4,
    )
    assert run("config", "unset", "serve.timeout", "--project") == 0
    assert "timeout" not in file.read_text()
    file.write_text("provider = [\n  'cpu',\n]\n")
    assert run("config", "set", "provider", "cuda", "--project") == 2
    assert file.read_text().startswith("provider = [")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("provder = 'cpu'", "'provder' is not a setting, did you mean 'provider'?"),
        ("threads = 0", "threads must be a whole number from 1 on, not 0"),
        ("keep = 95", "keep must be a share of the faces, such as 0.95, or none, not 95"),
        ("[serve]\nqueue = 0", "queue must be at least 1, not 0"),
        ("[serve]\nqueue = {}", "serve.queue must be"),
        ("keep = 0.9\nmin_quality = 1", "exclude each other; give only one"),
        ("threads", "not TOML"),
        ("x = " + "[" * 5000, "not TOML"),
        ("x = '\udcff'", "not text in UTF-8"),
    ],
)
def test_what_is_no_setting_names_its_place(place, capsys, content, problem):
    Path("facerts.toml").write_text(content, encoding="utf-8", errors="surrogateescape")
    error = refused(capsys, "score", "a.jpg")
    assert f"{Path.cwd() / 'facerts.toml'}: " in error
    assert problem in error


def test_a_wrong_option_or_variable_is_named(place, capsys, monkeypatch):
    assert "--set: 'thread' is not a setting, did you mean 'threads'?" in refused(
        capsys, "score", "a", OPTION, "thread=1"
    )
    assert "KEY=VALUE" in refused(capsys, "score", "a", OPTION, "threads")
    assert "not a setting" in refused(capsys, "config", "set", "thread", "1")
    assert "is not set there" in refused(capsys, "config", "unset", "threads")
    monkeypatch.setenv("FACERTS_TREADS", "1")
    assert "FACERTS_TREADS is not a setting, did you mean FACERTS_THREADS?" in refused(capsys, "score", "a")
    monkeypatch.setenv("FACERTS_THREADS", "x")
    assert "FACERTS_THREADS: threads must be a whole number" in refused(capsys, "score", "a")


def test_an_option_that_became_a_setting_says_so(capsys):
    for arguments, setting in (
        (("score", "a", "--provider", "cuda"), "provider=cuda"),
        (("score", "a", "--det-size=full"), "det_size=full"),
        (("video", "a", "--out", "b", "--no-rotate"), "rotate=false"),
        (("serve", "--allowed-host", "faces.example"), "serve.allowed_hosts=faces.example"),
    ):
        error = re.sub(r"[\s│]+", " ", refused(capsys, *arguments))
        advice = f"use --set {setting}, or facerts config set {setting.replace('=', ' ')}"
        assert f"{setting.partition('=')[0]} is a setting: {advice}" in error
    assert "No such option" in refused(capsys, "models", "list", "--threads", "2")


def test_offline_and_the_cache_reach_the_functions_that_download(place):
    read_settings(["offline=false", f"cache={place}"]).export()
    assert (os.environ["FACERTS_OFFLINE"], os.environ["FACERTS_CACHE"]) == ("0", str(place))


def test_every_meaning_says_the_default_that_is_not_a_value():
    for key, (_, default, meaning) in keys().items():
        assert default not in (None, ()) or re.search("by default", meaning, re.IGNORECASE), key


def test_the_commands_that_most_people_need_come_first():
    shown = CliRunner().invoke(build_app(), ["--help"], env={"COLUMNS": "100"}).output
    assert re.findall(r"^│ (\w+) ", shown, re.MULTILINE)[:6] == [
        "score",
        "verify",
        "gallery",
        "people",
        "video",
        "serve",
    ]


@pytest.mark.parametrize(
    ("value", "problem"), [("people.npz", "is no model"), ("facerts-quality", "without an embedding")]
)
def test_a_wrong_recognizer_is_refused_where_it_is_set_and_where_it_stands(place, capsys, value, problem):
    Path("people.npz").touch()
    Path("a.png").write_bytes(encode_png(draw_face(0, 0)))
    error = refused(capsys, "config", "set", "recognizer", value)
    assert error.startswith("error: facerts config set: recognizer: ")
    assert problem in error
    Path("facerts.toml").write_text(f'recognizer = "{value}"\n')
    for command in (("embed", "a.png", "--out", "out.npz"), ("score", "a.png", "--set", "quality=own")):
        assert f"facerts.toml: recognizer: {value}" in refused(capsys, *command)
    assert run("score", "a.png") == 0, "it needs no recognizer"


def test_errors_name_the_options_of_the_command(place, capsys):
    error = refused(capsys, "verify", "a.png", "b.png", "--model", "facerts-small", "--fmr", "0.5")
    assert "(--fmr 0.01)" in error
    assert "(--threshold 0.3)" in error
    assert "--set detector=yunet)" in _as_typed("a detector (--set detector=yunet)", [])
    assert _as_typed("data.fmr=1 is not fmr=1", []) == "data.fmr=1 is not fmr=1"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("score a.jpg --min-quality abc", "'abc' is not a number"),
        ("data split a --out b --identities 1.5", "'1.5' is not a whole number"),
        ("data split a --out b --identities 0", "0 is not at least 1"),
        ("evaluate identification --model a --data b --out c --unknown 2", "2 is not from 0.0 to 1.0"),
    ],
)
def test_what_is_no_number_is_refused_in_a_sentence(place, capsys, command, problem):
    assert problem in refused(capsys, *command.split())


def test_what_is_there_is_replaced_only_where_that_is_said(place, capsys, model):
    Path("there").mkdir()
    Path("there", "file").write_text("kept")
    checked = folders = 0
    for name, command in every_command().items():
        if any(option.name == "overwrite" for option in options_of(command)):
            checked += 1
            required = [
                word
                for parameter in command.params
                if parameter.required and parameter.name != "out"
                for word in ((parameter.opts[0], "x") if parameter.param_type_name == "option" else ("x",))
            ]
            line = name.replace("METHOD", "rts").split()
            for out in ("there", "there/file"):
                error = refused(capsys, *line, *required, "--out", out)
                is_folder = f"{out} is a folder; give a file to write" in error
                assert is_folder or f"{out} is there already: --overwrite replaces it" in error, name
                folders += is_folder
    assert checked > 12
    assert 0 < folders < checked, "only where --out is a file"
    assert Path("there", "file").read_text() == "kept"
