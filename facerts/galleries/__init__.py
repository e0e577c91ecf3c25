"""Galleries of known people: enroll, search, check and keep them."""

from facerts.galleries.check import Finding, Limits, Listed, Reason, check_images, read_findings
from facerts.galleries.enroll import Rejected
from facerts.galleries.enrollments import BestImage, Enrollments, best_images, copy_images
from facerts.galleries.gallery import Decision, Enrolled, Gallery, Match, Removed, TrackSearch
from facerts.galleries.store import GallerySummary

__all__ = [
    "BestImage",
    "Decision",
    "Enrolled",
    "Enrollments",
    "Finding",
    "Gallery",
    "GallerySummary",
    "Limits",
    "Listed",
    "Match",
    "Reason",
    "Rejected",
    "Removed",
    "TrackSearch",
    "best_images",
    "check_images",
    "copy_images",
    "read_findings",
]
