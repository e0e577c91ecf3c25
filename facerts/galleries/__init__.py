"""Galleries of known people: enroll, search, check and keep them."""

from facerts.galleries.best import BestImage
from facerts.galleries.check import Limits
from facerts.galleries.enrollment import Enrollments, Rejected
from facerts.galleries.findings import Finding, Listed, Reason, read_findings
from facerts.galleries.gallery import Gallery
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
    "read_findings",
]
