"""Videos to folders of results: tables of tracks, best shots, templates and annotated videos."""

from facerts.clips.video_job import (
    ClipRow,
    TrackRow,
    TrackSearch,
    VideoJob,
    VideoTask,
    run_videos,
    video_paths,
)

__all__ = ["ClipRow", "TrackRow", "TrackSearch", "VideoJob", "VideoTask", "run_videos", "video_paths"]
