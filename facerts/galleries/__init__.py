"""Galleries of known people: enroll, search, check and keep them."""

from facerts.galleries.best import BestImage, best_images, copy_images
from facerts.galleries.check import Limits, check_gallery, correct_gallery
from facerts.galleries.enroll import Enrollments, Rejected
from facerts.galleries.findings import Finding, Listed, Reason, read_findings
from facerts.galleries.gallery import Gallery
from facerts.galleries.gallery_file import read_gallery, write_gallery
from facerts.galleries.match import Decision, Match

__all__ = [
    "BestImage",
    "Decision",
    "Enrollments",
    "Finding",
    "Gallery",
    "Limits",
    "Listed",
    "Match",
    "Reason",
    "Rejected",
    "best_images",
    "check_gallery",
    "copy_images",
    "correct_gallery",
    "read_findings",
    "read_gallery",
    "write_gallery",
]
