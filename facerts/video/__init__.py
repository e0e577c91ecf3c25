"""Videos to frames and back: files, streams, cameras and images in memory; boxes of frames to tracks."""

from facerts.video.frames import Frame, FrameSource, ReadReport, VideoLimits
from facerts.video.open_frames import VideoInput, open_frames

__all__ = ["Frame", "FrameSource", "ReadReport", "VideoInput", "VideoLimits", "open_frames"]
