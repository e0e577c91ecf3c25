"""The public interface for scoring: a detector, a quality and a recognizer, each opened when it is first used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.folder import Files
from facerts.detection import Detector, DetSize, FaceFinder, open_face_finder
from facerts.embedding import Embedder, FaceOutputs
from facerts.errors import Error, ImageError, ModelError, check_kind, did_you_mean
from facerts.hub.find import default_model, is_quality
from facerts.images import CROP_SIZE
from facerts.io.progress import track
from facerts.onnx.contract import KeptPairs, MatchThreshold
from facerts.onnx.providers import AUTO, Runtime
from facerts.scoring.face import Face, embedded
from facerts.scoring.inputs import (
    Color,
    ImageInput,
    ImageInputs,
    check_color,
    lazy_images,
    lazy_input,
    lazy_inputs,
)
from facerts.scoring.parts import USABLE, FaceModel, Quality, Recognizer
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import LazyImage, prepare
from facerts.scoring.row import Row
from facerts.scoring.row_builder import RowBuilder
from facerts.scoring.track import Track
from facerts.scoring.verify import MatchRule, Verification
from facerts.scoring.video_tracks import TrackOptions, VideoTracks, video_detector
from facerts.video import FrameSource, ReadReport, VideoInput, VideoLimits, open_frames

# A share of the faces; None for the default, "none" for no decision.
Keep: TypeAlias = float | Literal["none"] | None
# Share of the calibration faces that are not poor in a video: as of those searched for in galleries.
TRACK_KEEP = 0.99


class Scorer:
    """Scores images and embeds aligned crops.

    Attributes:
        quality: tells how good faces are; None for no quality.
        recognizer: gives embeddings; None for none, as they are not needed to score.
        detector: finds the faces in photos; None if every image is an aligned crop.
        min_face_size: leave out the faces of photos whose box has a side below this number of pixels.
    """

    def __init__(
        self,
        quality: Quality | None,
        recognizer: Recognizer | None = None,
        detector: FaceFinder | None = None,
        *,
        min_face_size: float = 0,
    ) -> None:
        check_kind("a number", min_face_size=min_face_size)
        if not min_face_size >= 0:
            raise Error(f"min_face_size must be 0 or more pixels, not {min_face_size:g}")
        self.quality = quality
        self._recognizer = recognizer
        self.detector = detector
        self.min_face_size = min_face_size

    @classmethod
    def of(cls, embedder: Embedder, detector: FaceFinder | None = None, **options: Any) -> Scorer:
        """A scorer by one embedder of any kind, whose quality it takes as well."""
        return cls(Quality.of(embedder), Recognizer.of(embedder), detector, **options)

    @property
    def recognizer(self) -> Recognizer:
        """Gives embeddings."""
        if self._recognizer is None:
            raise ModelError("there is no recognizer, and embeddings are needed here; give one (recognizer=NAME)")
        return self._recognizer

    def check_face(self, face: Face) -> None:
        """Refuse a face of another recognizer, as its embedding cannot be compared with those of this one."""
        if face.model_sha256 != self.recognizer.sha256:
            raise ModelError(
                f"{face!r} is of another model ({face.model_sha256[:12]}…), and cannot be compared with faces of "
                f"{self.recognizer.name} ({self.recognizer.sha256[:12]}…); take faces of that model's scorer"
            )

    def __repr__(self) -> str:
        return f"<Scorer quality {self.quality}, recognizer {self._recognizer}, detector {self.detector_name}>"

    def model(self, *, embed: bool = True) -> FaceModel:
        """The quality, and the recognizer if embeddings are needed, as one model."""
        return FaceModel(self.quality, self.recognizer if embed or self.quality is None else None)

    def score(
        self,
        images: ImageInputs,
        *,
        min_quality: float | None = None,
        keep: Keep = None,
        largest: bool = False,
        color: Color = "RGB",
    ) -> list[Row]:
        """A row for each face of each image; an image that cannot be read gives a row with an error.

        Args:
            images: paths, encoded bytes, ``(H, W, 3) uint8`` arrays or PIL images; one, several, or ``(N, H, W, 3)``.
                A folder, record directory, shard or list stands for all of its images. Without a detector they are
                aligned crops.
            min_quality: accept faces with at least this quality.
            keep: accept faces above the threshold that keeps this share of the good faces that the quality was
                calibrated on; None for 0.95 if it is calibrated, "none" for no decision. What is not a face is not
                accepted either way.
            largest: only the largest face of each photo.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.

        Raises:
            DataError: a folder, or another source of several images, has none.
            ModelError: the model has no threshold for this share, or no quality to accept faces by.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> scorer = facerts.load()
            >>> (row,) = scorer.score(draw_face(0, 0), min_quality=-2)
            >>> row.accepted
            True
            >>> (row,) = scorer.score(b"these bytes are not an image")
            >>> row.quality is None, row.error is None
            (True, False)
        """
        faces = self.score_each(images, min_quality=min_quality, keep=keep, largest=largest, color=color, embed=False)
        return [face.row for face in faces]

    def faces(
        self,
        images: ImageInputs,
        *,
        min_quality: float | None = None,
        keep: Keep = None,
        largest: bool = False,
        color: Color = "RGB",
        embed: bool = False,
    ) -> list[Face]:
        """The faces of images, each with its box, points, pose, crop, quality, verdict and reasons.

        An image without a face gives none, and one that cannot be read raises; ``score`` goes on, and describes the
        other arguments.

        Args:
            embed: compute embeddings in batches; otherwise each is computed when it is first read.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> (face,) = facerts.load().faces(draw_face(0, 0))
            >>> face.crop.shape, face.embedding.shape
            ((112, 112, 3), (128,))
        """
        faces = self.iter_faces(images, min_quality=min_quality, keep=keep, largest=largest, color=color, embed=embed)
        return list(faces)

    def iter_faces(self, images: ImageInputs, *, embed: bool = False, **options: Any) -> Iterator[Face]:
        """As ``faces``, one by one, for any number of images."""
        for face in self.score_each(images, embed=embed, **options):
            if face.row.error is not None:
                raise ImageError(face.row.error)
            if face.crop is not None:
                yield replace(face, recognizer=self._recognizer)

    def score_each(
        self,
        images: ImageInputs,
        *,
        min_quality: float | None = None,
        keep: Keep = None,
        largest: bool = False,
        color: Color = "RGB",
        embed: bool = True,
        progress: str = "",
    ) -> Iterator[Face]:
        """As ``score``, one by one, for any number of images: rows with crops and embeddings.

        Args:
            embed: with embeddings, which need the recognizer.
            progress: what a progress bar says; empty for none.
        """
        inputs = lazy_inputs(images, color)
        row_builder = self.row_builder(self.min_quality(min_quality, keep), embed=embed)
        scored = self.score_lazy(inputs, row_builder, largest=largest)
        if progress:
            scored = track(scored, progress, total=len(inputs), unit="images")
        for faces in scored:
            yield from faces

    def video(
        self,
        video: VideoInput,
        *,
        fps: float = 5.0,
        best: int = 3,
        min_faces: int = 2,
        join_seconds: float | None = None,
        min_quality: float | None = None,
        keep: Keep = None,
        color: Color = "RGB",
        limits: VideoLimits | None = None,
        reconnect: float = 60.0,
        report: ReadReport | None = None,
    ) -> Iterator[Track]:
        """The people in a video one by one, each with times, best shots and a template.

        Those of a file come at its end; those of a stream, a camera or a generator when they have been gone for
        ``join_seconds``, and at its end. Memory grows with the number of people, not with the frames.

        Args:
            video: a path; an address (http, rtsp, rtmp, srt, udp …); the number of a camera, or "device:0"; the bytes
                of a video, or a file that is open in binary mode; ``(H, W, 3) uint8`` arrays, of which ``fps`` make a
                second; or pairs of a time in seconds and such an array.
            fps: frames per second that are looked at.
            best: maximum number of best shots of a track.
            min_faces: leave out tracks with fewer faces, which are mostly errors of the detector.
            join_seconds: longest absence over which tracks of one person are joined, by the model's strictest match
                threshold, if it has any; 0 joins none, None joins over any absence, and over 60 seconds where the video
                may have no end.
            min_quality: faces below this quality are poor, as is what is not a face: they are no best shots, and count
                in the template only if there are no others.
            keep: likewise by the model's threshold that keeps this share of its calibration faces; by default 0.99 if
                the model has it.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.
            limits: how much of a file or stream is read; None for frames of at most 16 million pixels.
            reconnect: seconds without a frame for which a stream or camera that has dropped is opened again and again.
            report: filled in with how far the video was read; None if nobody wants to know.

        Raises:
            VideoError: the video cannot be opened, or is more than may be read. One that is damaged or cut off gives
                the tracks until there, and the report says so.

        Examples:
            >>> import facerts, numpy as np
            >>> from facerts.datasets.synthetic import draw_face
            >>> from facerts.detection import Detection
            >>> from facerts.images.align import TEMPLATE
            >>> scorer = facerts.load()
            >>> scorer.detector = lambda frame: [Detection(np.array([0, 0, 112, 112.0]), TEMPLATE, 0.9)]
            >>> (track,) = scorer.video([draw_face(2, 0)] * 10, min_quality=-9)
            >>> track.start, track.end, track.faces, track.best[0].crop.shape
            (0.0, 1.8, 10, (112, 112, 3))
        """
        source = open_frames(video, color=color, limits=limits, reconnect=reconnect)
        source.report = source.report if report is None else report
        options = TrackOptions(fps, best, min_faces, join_seconds)
        tracks = self.track(source, options, self.track_row_builder(min_quality=min_quality, keep=keep))
        for frame in tracks.frames():
            yield from frame.tracks
        yield from tracks.finish()

    def track(
        self,
        source: FrameSource,
        options: TrackOptions,
        row_builder: RowBuilder,
        *,
        workers: int | None = None,
    ) -> VideoTracks:
        """What ``video`` does, frame by frame.

        Args:
            row_builder: see ``track_row_builder``.
            workers: threads that find faces; None for one per core.
        """
        return VideoTracks(
            row_builder,
            self.recognizer,
            video_detector(self.detector),
            source,
            options,
            min_face_size=self.min_face_size,
            workers=workers,
            parallel_batches=self.model().parallel_batches if workers is None else 1,
        )

    def track_row_builder(self, *, min_quality: float | None = None, keep: Keep = None) -> RowBuilder:
        """The builder of the rows of a video's faces, which rejects those that are poor."""
        if min_quality is None and keep is None:
            keep = TRACK_KEEP if self._share(TRACK_KEEP) is not None else "none"
        return self.row_builder(self.min_quality(min_quality, keep))

    def verify(
        self,
        first: ImageInput | Face,
        second: ImageInput | Face,
        *,
        fmr: float | None = None,
        threshold: float | None = None,
        keep: Keep = None,
        min_quality: float | None = None,
        color: Color = "RGB",
    ) -> Verification:
        """Whether two images show the same person, at a false match rate that the model was calibrated for.

        Of a photo with several faces the largest is compared, and ``note`` says so.

        Args:
            first: a path, encoded bytes, an ``(H, W, 3) uint8`` array, a PIL image, or a face of this scorer.
            second: likewise.
            fmr: share of the pairs of different people that may be taken for the same person, one of those that the
                model was calibrated for; None for 0.001, or the lowest if that is missing.
            threshold: instead, the similarity at or above which two faces match; its error rates are not known.
            keep: compare only faces above the model's threshold that keeps this share of its calibration faces;
                by default 0.95 if the model has quality thresholds.
            min_quality: instead, compare faces with at least this quality.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.

        Returns:
            The decision and what it rests on; an image that cannot be read or has no face gives an ``error``.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> result = facerts.load().verify(draw_face(0, 0), draw_face(0, 0), min_quality=-2)
            >>> result.decision, round(result.similarity, 4), round(result.threshold, 4)
            ('same', 1.0, 0.3861)
        """
        rule = self.match_rule(fmr=fmr, threshold=threshold, keep=keep, min_quality=min_quality)
        row_builder = self.row_builder(rule.min_quality)
        for face in (first, second):
            if isinstance(face, Face):
                self.check_face(face)
        named = (("the first image", first), ("the second image", second))
        images = [lazy_input(each, name, color) for name, each in named if not isinstance(each, Face)]
        scored = self.score_lazy(images, row_builder, largest=True)
        given = [each if isinstance(each, Face) else next(scored)[0] for _, each in named]
        return rule.verify(*map(row_builder.decided, embedded(given)))

    def verify_pairs(
        self,
        pairs: Sequence[tuple[str | Path, str | Path]],
        rule: MatchRule | None = None,
        *,
        progress: str = "",
    ) -> Iterator[Verification]:
        """As ``verify`` for many pairs of paths, in order, by a ``match_rule``; each image is read and embedded once.

        Embeddings are kept in memory until the end, about 2 KB per image; images are not.
        """
        rule = rule or self.match_rule()
        paths = list(dict.fromkeys(str(path) for pair in pairs for path in pair))
        scored = self.score_lazy(
            lazy_images(Files("pairs", Path(), paths, None)), self.row_builder(rule.min_quality), largest=True
        )
        if progress:
            scored = track(scored, progress, total=len(paths), unit="images")
        faces = {path: replace(face, crop=None) for path, (face,) in zip(paths, scored, strict=True)}
        for first, second in pairs:
            yield rule.verify(faces[str(first)], faces[str(second)])

    def match_rule(
        self,
        *,
        fmr: float | None = None,
        threshold: float | None = None,
        keep: Keep = None,
        min_quality: float | None = None,
    ) -> MatchRule:
        """What ``verify`` decides by."""
        check_kind("a number", fmr=fmr, threshold=threshold)
        recognizer = self.recognizer
        limit = self.min_quality(min_quality, keep)
        if threshold is not None:
            if not -1 <= threshold <= 1:
                raise ModelError(f"a threshold of {threshold:g} is no cosine similarity; give one from -1 to 1")
            return MatchRule(None, threshold, None, None, limit, recognizer.sha256)
        if fmr is None:
            fmr = recognizer.default_fmr()
        match = recognizer.match_threshold(fmr)
        # Only faces above the limit are compared. The error rate of such pairs is known for the file's own quality.
        errors: MatchThreshold | KeptPairs = match
        if min_quality is None and keep != "none" and len(self.model().models) == 1:
            errors = match.kept.get(self._share(USABLE if keep is None else keep) or "", match)
        return MatchRule(
            fmr=fmr,
            threshold=match.similarity,
            fnmr=errors.fnmr,
            fnmr_ci95=None if errors.ci95 is None else [*errors.ci95],
            min_quality=limit,
            model_sha256=recognizer.sha256,
        )

    def score_lazy(self, images: Iterable[LazyImage], row_builder: RowBuilder, **options: Any) -> Iterator[list[Face]]:
        """The faces of images, loaded when they are needed; see ``score_images`` for the options."""
        options.setdefault("detector", self.detector)
        return score_images(row_builder, images, min_face_size=self.min_face_size, **options)

    def row_builder(self, min_quality: float | None, *, embed: bool = True) -> RowBuilder:
        """The builder of rows from the outputs of the models.

        Args:
            min_quality: the quality from which faces are accepted, see ``min_quality``; None for no decision.
            embed: with embeddings, which need the recognizer.
        """
        if self.quality is None:
            return RowBuilder(self.model(embed=embed), min_quality)
        return RowBuilder(self.model(embed=embed), min_quality, self.quality.calibration, self.quality.cutoffs)

    def min_quality(self, min_quality: float | None = None, keep: Keep = None) -> float | None:
        """The quality from which faces are accepted, see ``score``; None for no decision."""
        check_kind("a number", min_quality=min_quality, keep=None if keep == "none" else keep)
        if min_quality is not None and keep is not None:
            raise ModelError("min_quality and keep both set the threshold; give only one")
        if min_quality is not None or keep == "none":
            return min_quality
        if keep is not None:
            return self.threshold(keep)
        return None if self.quality is None or self.quality.cutoffs is None else self.quality.cutoffs[0]

    def settings(self, *, embed: bool = True) -> dict[str, str | float | bool | None]:
        """Everything that rows depend on besides the images and the threshold, as JSON values."""
        model = self.model(embed=embed)
        detector = None if self.detector is None else self.detector.identity
        return {
            "models": "+".join(each.sha256 for each in model.models),
            "provider": model.provider,
            "detector": detector,
            "min_face_size": self.min_face_size,
        }

    @property
    def detector_name(self) -> str:
        """The kind of the detector: "none", "auto", "YuNet", "SCRFD"."""
        if self.detector is None:
            return "none"
        if isinstance(self.detector, Detector) and self.detector.crops:
            return "auto"
        return type(getattr(self.detector, "network", self.detector)).__name__

    def embed(self, images: ImageInputs, *, color: Color = "RGB") -> FaceOutputs:
        """Outputs for one face of each image; ``faces`` gives all faces of photos.

        Args:
            images: see ``score``. Of a photo with several faces, the largest is embedded.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.

        Returns:
            One row for each image.

        Raises:
            ImageError: an image cannot be read or has no face, or is neither an aligned crop nor, with a detector, a
                photo.
            ModelError: an array of several crops has another data type.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> outputs = facerts.load().embed([draw_face(0, 0), draw_face(0, 1)])
            >>> outputs.embedding.shape, outputs.quality.shape
            ((2, 128), (2,))
        """
        color = check_color(color)
        model = self.model()
        takes_crops = self.detector_name in ("none", "auto")
        if takes_crops and isinstance(images, np.ndarray) and images.shape[1:] == (CROP_SIZE, CROP_SIZE, 3):
            return model(images if color == "RGB" else np.ascontiguousarray(images[..., ::-1]))
        crops = [self._only_crop(image) for image in lazy_inputs(images, color)]
        return model(np.stack(crops) if crops else np.empty((0, CROP_SIZE, CROP_SIZE, 3), np.uint8))

    def _only_crop(self, image: LazyImage) -> NDArray[np.uint8]:
        """The largest face of an image."""
        prepared = prepare(image, self.detector, max_faces=1, min_face_size=self.min_face_size)
        if prepared.error is not None:
            raise ImageError(prepared.error)
        if not prepared.crops:
            raise ImageError(f"{prepared.path}: no face found")
        return prepared.crops[0]

    def threshold(self, keep: float) -> float:
        """The quality threshold that keeps a share of the calibration faces; see ``Quality.threshold``."""
        if self.quality is None:
            raise ModelError("there is no quality to accept faces by; give one (quality=NAME)")
        return self.quality.threshold(keep)

    def _share(self, keep: float) -> str | None:
        return None if self.quality is None else self.quality.share(keep)


def load(
    model: str | Path | None = None,
    *,
    quality: str | Path | None = None,
    recognizer: str | Path | None = None,
    detector: str | Path = "auto",
    det_threshold: float | None = None,
    det_size: DetSize = "auto",
    rotate: bool | None = None,
    min_face_size: float = 0,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int | None = None,
    **unknown: Any,
) -> Scorer:
    """A detector, a quality and a recognizer, each opened when it is first used.

    Args:
        model: name or .onnx file of a model that is both quality and recognizer (a foreign one with its description
            beside it), or only the quality. With the bundled quality, the recognizer is the default one.
        quality: name or file of the quality; None for ``model``, or facerts-quality. "own" is the recognizer's own,
            "none" is none.
        recognizer: name or file of the recognizer, or an insightface model pack; None for ``model``, or the default
            one.
        detector: "auto" takes an image of 112 x 112 as an aligned crop, and finds the faces in any other with YuNet,
            which is opened when the first photo comes. "yunet", or the path of an .onnx file of YuNet or SCRFD or of
            a model pack, finds faces in every image. "none" takes every image as an aligned crop, a square of any
            size.
        det_threshold: minimum detector score of a face, 0 to 1; None for the detector's default.
        det_size: the longest side in pixels at which photos are searched; "full" for their own, "auto" for what is
            needed for faces that are not too small to use. Large faces are found at any size.
        rotate: search photos without an upright face turned by 90, 180 and 270 degrees, too; None for photos only, and
            not for the frames of videos.
        min_face_size: leave out the faces of photos whose box has a side below this number of pixels.
        providers: see ``Runtime``, also for the detector.
        threads: see ``Runtime``; None gives the detector, which processes several images at once, one thread.
        batch_size: see ``Runtime``.

    Examples:
        >>> import facerts
        >>> scorer = facerts.load()
        >>> scorer.quality.name, scorer.recognizer.name
        ('facerts-quality', 'facerts-small')
        >>> round(scorer.threshold(0.95), 4)
        0.5127
    """
    for name in unknown:
        of_scorer = "; it is an argument of the scorer's functions" * (
            name in ("keep", "min_quality", "fmr", "largest")
        )
        raise Error(f"load has no argument {name}{of_scorer or did_you_mean(name, signature(load).parameters)}")
    check_kind("a name or a path", model=model, quality=quality, recognizer=recognizer, detector=detector)
    check_kind("a number", det_threshold=det_threshold)
    check_kind("a list of names", providers=providers)
    runtime: Runtime = {"providers": providers, "threads": threads, "batch_size": batch_size}
    finder = open_face_finder(
        detector,
        threshold=det_threshold,
        size=det_size,
        rotate=rotate,
        providers=providers or [AUTO],
        threads=threads or 1,
    )
    recognizer = recognizer or (None if model is None or is_quality(model) else model)
    recognizer = recognizer or (default_model() if quality == "own" else None)
    recognizes = Recognizer(recognizer, **runtime)
    scores = None if quality == "none" else Quality(recognizer if quality == "own" else quality or model, **runtime)
    if scores is not None and scores.model == recognizes.model is not None:
        recognizes = Recognizer.of(scores)
    return Scorer(scores, recognizes, finder, min_face_size=min_face_size)


def verify(
    first: ImageInput,
    second: ImageInput,
    *,
    fmr: float | None = None,
    threshold: float | None = None,
    keep: Keep = None,
    min_quality: float | None = None,
    color: Color = "RGB",
) -> Verification:
    """Whether two images show the same person, by the default model; see ``Scorer.verify``.

    The model is loaded at the first call and kept; ``facerts.load`` opens another one, or a detector.

    Examples:
        >>> import facerts
        >>> from facerts.datasets.synthetic import draw_face
        >>> facerts.verify(draw_face(0, 0), b"these bytes are not an image").error is None
        False
    """
    return _default_scorer().verify(
        first, second, fmr=fmr, threshold=threshold, keep=keep, min_quality=min_quality, color=color
    )


@cache
def _default_scorer() -> Scorer:
    return load()
