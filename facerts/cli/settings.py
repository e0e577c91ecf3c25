"""Settings that are the same for every command, and where they are set.

In rising order: a file in the user's configuration folder, ``facerts.toml`` in the current folder, variables of the
environment (``FACERTS_PROVIDER``; a dot is ``_``), and ``--set KEY=VALUE``. Python's functions do not read them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Le

from facerts.cli.docstrings import read_docstring
from facerts.errors import Error, did_you_mean
from facerts.io.cache import user_folder
from facerts.io.console import warn
from facerts.serving.settings import Settings as ServiceSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from facerts.detection import FaceFinder
    from facerts.onnx.providers import Runtime
    from facerts.scoring import Scorer

FILE_NAME = "facerts.toml"
OPTION = "--set"
# Settings of which a higher place that has the one says that the other is not wanted.
ALTERNATIVES = {"keep": "min_quality", "min_quality": "keep"}
# What a service takes as options, or as settings of every command.
NOT_SERVICE = {"token", "gallery", "video", "keep", "min_quality", "fmr"}

Count: TypeAlias = Annotated[int, Ge(1)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1)]
Names: TypeAlias = Annotated[list[str] | None, "a name, or several with commas between them"]
Flag: TypeAlias = Annotated[bool | None, "true or false"]
Whole: TypeAlias = Annotated[Count | None, "a whole number from 1 on"]
Keep: TypeAlias = Annotated[Share | Literal["none"] | None, "a share of the faces, such as 0.95, or none"]
Text: TypeAlias = Annotated[str | None, "a name or a file"]


@dataclass(frozen=True)
class EvaluateSettings:
    """Settings of evaluations.

    Attributes:
        detector_baseline: Detector whose score is a baseline, with values as for detector; by default there is none.
        seed: Seed of the random choices and of the bootstrap.
        replicates: Bootstrap resamples of the people (evaluate fiqa).
        cost: Whether the time per image of each quality is measured (evaluate fiqa).
        neighbors: Number of nearest faces of --reference whose similarity is a baseline.
        crops: Whether the crops that a report shows are saved: worst pairs, best and worst faces.
    """

    detector_baseline: Text = None
    seed: Annotated[int, Ge(0), "a whole number"] = 0
    replicates: Annotated[int, Ge(0), "a whole number"] = 300
    cost: Annotated[bool, "true or false"] = True
    neighbors: Annotated[Count, "a whole number from 1 on"] = 10
    crops: Annotated[bool, "true or false"] = True


@dataclass(frozen=True)
class RaySettings:
    """Settings of facerts score --engine ray.

    Attributes:
        address: Ray cluster to use, HOST:PORT or auto; by default Ray is started on this machine.
        workers: Number of workers, each with as many cores as the setting threads; by default as many as fit.
    """

    address: Annotated[str | None, "an address"] = None
    workers: Whole = None


@dataclass(frozen=True)
class VideoSettings:
    """Settings of facerts video.

    Attributes:
        min_faces: Leave out tracks with fewer faces, which are mostly detector errors.
        join_seconds: Longest absence over which tracks of one person are joined, 0 for none; by default any, and 60 for
            streams and cameras.
        reconnect: Seconds without a frame during which a dropped stream or camera is reopened.
    """

    min_faces: Annotated[Count, "a whole number from 1 on"] = 2
    join_seconds: Annotated[Annotated[float, Ge(0)] | None, "a number of seconds"] = None
    reconnect: Annotated[float, Ge(0), "a number of seconds"] = 60.0


class Acceptance(TypedDict):
    """Arguments of functions that accept or reject faces."""

    min_quality: float | None
    keep: Keep


@dataclass(frozen=True)
class CommandSettings:
    """What is set once for all commands; None for what each command takes by default.

    Attributes:
        recognizer: Name or .onnx file of the recognizer, or an insightface model pack, unless --model is given; by
            default facerts-small.
        quality: Name or .onnx file of the quality model; by default facerts-quality. own: the recognizer's own quality.
        detector: Detector for photos: yunet, or the path of an .onnx file of YuNet or SCRFD, or of an insightface model
            pack. auto: yunet, except for images of 112 x 112, the size of an aligned crop. none: every image is an
            aligned crop, a square of any size. By default auto, and none for evaluate, calibrate and data.
        det_threshold: Minimum detector score of a face; by default 0.6 for YuNet and 0.5 for SCRFD.
        det_size: Longer side at which photos are searched: a number of pixels; auto, enough for all faces that are
            large enough to use; or full, the photo's own. By default auto.
        rotate: If a photo has no upright face, also search it turned by 90, 180 and 270 degrees; by default true, but
            false for the frames of videos.
        min_face_size: Leave out faces of photos whose box is narrower or lower than this number of pixels.
        provider: Provider of ONNX Runtime: cpu, cuda, tensorrt, migraphx, rocm, coreml, openvino, or another one by its
            name. Of several, all must start, and each computes what the ones before cannot; after auto, the first that
            starts is used. By default auto: the fastest on this machine, by facerts doctor --bench.
        threads: Threads per forward pass; by default one for scoring, and otherwise ONNX Runtime's choice.
        batch_size: Crops per batch; by default what is fastest on this machine, and for evaluations 64 (fiqa: 16). In
            the service, from all requests together, by default 8.
        flip: Add the embedding of the mirror image of each crop; by default only evaluate verification, reject and
            identification do.
        keep: Accept faces above the quality threshold that keeps this share of good faces; none for every face. By
            default 0.95, but 0.99 for searches in galleries and for videos.
        min_quality: Instead, accept faces with at least this quality; by default the setting keep decides.
        fmr: False match rate of facerts verify and of the service: one of those that the recognizer was calibrated for,
            by default 0.001, or else the lowest.
        offline: Download nothing.
        cache: Folder for downloads and measurements of this machine; by default facerts in the user's cache folder.
        output_cache: Folder that keeps the outputs of models, so that further runs need no forward pass; by default
            evaluate keeps them in cache in --out, and posthoc beside --out. It can be deleted at any time.
    """

    recognizer: Text = None
    quality: Text = None
    detector: Text = None
    det_threshold: Annotated[Share | None, "a number from 0 to 1"] = None
    det_size: Annotated[Count | Literal["auto", "full"] | None, "auto, full or a number of pixels"] = None
    rotate: Flag = None
    min_face_size: Annotated[float, Ge(0), "a number of pixels"] = 0
    provider: Names = None
    threads: Whole = None
    batch_size: Whole = None
    flip: Flag = None
    keep: Keep = None
    min_quality: Annotated[float | None, "a number"] = None
    fmr: Annotated[Share | None, "a false match rate, such as 0.001"] = None
    offline: Annotated[bool, "true or false"] = False
    cache: Annotated[Path | None, "a folder"] = None
    output_cache: Annotated[Path | None, "a folder"] = None
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    video: VideoSettings = field(default_factory=VideoSettings)
    serve: ServiceSettings = field(default_factory=ServiceSettings)
    # Those that are set somewhere.
    found: Mapping[str, FoundSetting] = field(default_factory=dict, compare=False)

    def typed(self, name: str) -> bool:
        """Whether the command line has a setting."""
        return name in self.found and self.found[name].where == OPTION

    def scorer(
        self, model: str | None = None, recognizer: str | None = None, *, batch_size: int | None = None
    ) -> Scorer:
        """See ``facerts.load``; a model is both quality and recognizer, unless the command line says otherwise."""
        from facerts.scoring import load

        parts = {name: getattr(self, name) for name in ("recognizer", "quality")}
        if model is not None:
            parts = {name: part for name, part in parts.items() if self.typed(name)}
        for name, part in parts.items():
            if part is not None and name in self.found:
                check_model(name, part, self.found[name].where)
        if recognizer is not None:
            parts["recognizer"] = recognizer
        searched = {
            name: getattr(self, name)
            for name in ("det_threshold", "det_size", "rotate")
            if getattr(self, name) is not None and (self.detector != "none" or self.typed(name))
        }
        return load(
            model,
            **parts,
            detector=self.detector or "auto",
            **searched,
            min_face_size=self.min_face_size,
            batch_size=self.batch_size or batch_size,
            threads=self.threads or 1,
            providers=self.provider,
        )

    def acceptance(self, min_quality: float | None = None, keep: Keep = None) -> Acceptance:
        """The arguments ``min_quality`` and ``keep``: those of the command, or else these."""
        if min_quality is None and keep is None:
            min_quality, keep = self.min_quality, self.keep
        return {"min_quality": min_quality, "keep": keep}

    def min_quality_of(self, scorer: Scorer) -> float | None:
        """The least quality of an image in a gallery or a group; None for the model's own."""
        if self.min_quality is None and self.keep is None:
            return None
        minimum = scorer.min_quality(self.min_quality, self.keep)
        return float("-inf") if minimum is None else minimum

    def runtime(self) -> Runtime:
        """The arguments of functions that load a model."""
        from facerts.onnx.providers import AUTO

        providers = self.provider or [AUTO]
        return {"providers": providers, "threads": self.threads, "batch_size": self.batch_size or 64}

    def face_finder(self) -> FaceFinder | None:
        """What finds the faces in photos of data sets; None if every image is an aligned crop."""
        from facerts.detection import open_face_finder

        runtime = self.runtime()
        return open_face_finder(self.detector or "none", providers=runtime["providers"], threads=self.threads)

    def export(self) -> None:
        """Tell the functions that read variables, also those of other processes."""
        os.environ["FACERTS_OFFLINE"] = str(int(self.offline))
        if self.cache is not None:
            os.environ["FACERTS_CACHE"] = str(self.cache)


# The tables of a file.
TABLES: dict[str, type[Any]] = {
    "evaluate": EvaluateSettings,
    "ray": RaySettings,
    "video": VideoSettings,
    "serve": ServiceSettings,
}


class Key(NamedTuple):
    """A setting: its type, its default, and what it is."""

    hint: Any
    default: Any
    help: str


class FoundSetting(NamedTuple):
    """The value of a setting, and the file, variable or option where it stands."""

    value: Any
    where: str


@cache
def keys() -> dict[str, Key]:
    """All settings by name, such as ``provider`` and ``serve.max_bytes``."""
    found = {}
    groups: dict[str, type[Any]] = {"": CommandSettings, **TABLES}
    for name, group in groups.items():
        hints, texts = get_type_hints(group, include_extras=True), read_docstring(getdoc(group) or "")[1]
        for one in fields(group):
            if one.name in texts and not (group is ServiceSettings and one.name in NOT_SERVICE):
                found[f"{name}.{one.name}".lstrip(".")] = Key(hints[one.name], one.default, texts[one.name])
    return found


def user_file() -> Path:
    """The file of settings in the user's configuration folder."""
    return user_folder("config") / FILE_NAME


def project_file() -> Path:
    """The file of settings in the current folder."""
    return Path(FILE_NAME).absolute()


def variable_of(key: str) -> str:
    """The environment variable of a setting."""
    return f"FACERTS_{key.upper().replace('.', '_')}"


def read_settings(options: Sequence[str] = ()) -> CommandSettings:
    """The settings of a command, with those that its line sets as ``KEY=VALUE``."""
    found = find_settings(options)
    values: dict[str, dict[str, Any]] = {table: {} for table in ("", *TABLES)}
    for key, (value, _) in found.items():
        table, _, name = key.rpartition(".")
        values[table][name] = value
    tables = {table: kind(**values[table]) for table, kind in TABLES.items()}
    return CommandSettings(**values[""], **tables, found=found)


def find_settings(options: Sequence[str] = ()) -> dict[str, FoundSetting]:
    """Every setting that stands somewhere, by name, with its value in the highest place."""
    found: dict[str, FoundSetting] = {}
    for place in (_of_file(user_file()), _of_file(project_file()), _of_variables(), _of_options(options)):
        values = {key: FoundSetting(checked(key, value, where), where) for key, value, where in place}
        for key, other in ALTERNATIVES.items():
            if key in values and other in values:
                raise Error(f"{values[key].where}: {key} and {other} exclude each other; give only one")
            if key in values:
                found.pop(other, None)
        found |= values
    return found


def checked(key: str, value: object, where: str) -> Any:
    """A value as its setting takes it; ``where`` it stands is named in errors."""
    from pydantic import TypeAdapter, ValidationError

    if key not in keys():
        raise Error(
            f"{where}: {key!r} is not a setting{did_you_mean(key, keys()) or '; facerts config list shows all'}"
        )
    hint = keys()[key].hint
    if isinstance(value, str) and _takes_several(hint):
        value = value.split(",")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        taken = adapter.validate_strings(value) if isinstance(value, str) else adapter.validate_python(value)
        group, _, name = key.rpartition(".")
        if group == "serve":
            replace(ServiceSettings(), **{name: taken})
    except (ValidationError, Error) as error:
        if isinstance(error, Error):
            raise Error(f"{where}: {error}") from error
        words = [text for text in get_args(hint) if isinstance(text, str)] or ["a number"]
        raise Error(f"{where}: {key} must be {words[0]}, not {value!r}") from error
    return taken


def check_model(key: str, value: str, where: str) -> None:
    """Refuse what the settings recognizer and quality cannot be; ``where`` it stands is named in errors."""
    from facerts.hub.find import is_quality
    from facerts.scoring.parts import ModelPart

    try:
        if value not in ("own", "none"):
            ModelPart(value)
        if key == "recognizer" and is_quality(value):
            raise Error(f"{value} is a quality without an embedding; facerts models list shows recognizers")
    except Error as error:
        raise Error(f"{where}: {key}: {error}") from error


def _takes_several(hint: Any) -> bool:
    return get_origin(hint) in (list, Sequence) or any(map(_takes_several, get_args(hint)))


def read_toml(file: Path) -> dict[str, object]:
    """What a file of settings has; nothing if there is none."""
    if not file.is_file():
        return {}
    try:
        return parse_toml(file.read_text(encoding="utf-8"), file)
    except UnicodeDecodeError as error:
        raise Error(f"{file}: not text in UTF-8") from error


def parse_toml(text: str, file: Path) -> dict[str, object]:
    """What the text of a file has."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Error(f'{file}: not TOML ({error}); correct it, such as provider = "cuda"') from error


def _of_file(file: Path) -> Iterator[tuple[str, Any, str]]:
    for key, value in flat(read_toml(file)):
        yield key, value, str(file)


def flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of a file, those of tables by dotted names."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _of_variables() -> Iterator[tuple[str, str, str]]:
    names = {variable_of(key): key for key in keys()}
    for variable, value in sorted(os.environ.items()):
        if variable in names and value:
            yield names[variable], value, variable
        elif variable.startswith("FACERTS_") and variable not in names:
            for near in get_close_matches(variable, names, n=1, cutoff=0.9):
                warn(f"{variable} is not a setting, did you mean {near}?")


def _of_options(options: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise Error(f"{OPTION} {text}: give it as KEY=VALUE, such as provider=cuda")
        yield key, value, OPTION
