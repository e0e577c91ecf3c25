"""Result folders as one self-contained page with figures."""

from facerts.report.page import write_report

__all__ = ["write_report"]
