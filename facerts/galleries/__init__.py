"""Galleries of known people: enroll, search, check and keep them."""

from facerts.galleries.best import BestImage, best_images, copy_images
from facerts.galleries.check import Limits, check_gallery, correct_gallery
from facerts.galleries.enroll import Enrollments, Rejected
from facerts.galleries.findings import Finding, Listed, Reason, read_findings
from facerts.galleries.gallery import Gallery
from facerts.galleries.gallery_file import read_gallery, write_gallery
from facerts.galleries.match import Decision, Match
from facerts.galleries.open_gallery import open_gallery
from facerts.galleries.people_search import PeopleSearch
from facerts.galleries.stored_gallery import Enrolled, GallerySummary, Removed, StoredGallery

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
    "PeopleSearch",
    "Reason",
    "Rejected",
    "Removed",
    "StoredGallery",
    "best_images",
    "check_gallery",
    "copy_images",
    "correct_gallery",
    "open_gallery",
    "read_findings",
    "read_gallery",
    "write_gallery",
]
