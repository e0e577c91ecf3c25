"""Galleries of known people: enroll, search, check and keep them."""

from facerts.galleries.best import BestImage
from facerts.galleries.check import Limits
from facerts.galleries.enrollment import Enrollments, Rejected
from facerts.galleries.findings import Finding, Listed, Reason, read_findings
from facerts.galleries.gallery import Gallery
from facerts.galleries.match import Decision, Match
from facerts.galleries.table import check_table, write_table

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
    "check_table",
    "read_findings",
    "write_table",
]
