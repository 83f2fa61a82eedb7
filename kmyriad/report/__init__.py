"""Runs as one HTML page that opens from disk, with everything it needs inside."""

from kmyriad.report.page import write_report

__all__ = ["write_report"]
