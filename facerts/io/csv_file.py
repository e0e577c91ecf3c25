"""Lists and tables that others wrote, as text."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from facerts.errors import DataError
from facerts.io.files import reading, regular

# What is read into memory; a list that is gone through line by line may be larger.
MAX_BYTES, MAX_LIST_BYTES = 1 << 28, 1 << 30
MAX_LINE = 1 << 20


def text_lines(path: Path, max_bytes: int = MAX_LIST_BYTES) -> Iterator[str]:
    """The lines of a text in UTF-8, with what ends them; of a line above ``MAX_LINE`` letters, one part at a time."""
    try:
        with reading(path), open(path, encoding="utf-8-sig", newline="", opener=regular) as file:
            if os.fstat(file.fileno()).st_size > max_bytes:
                raise DataError(f"{path}: larger than {max_bytes >> 20} MiB, the limit for such a file")
            while line := file.readline(MAX_LINE):
                yield line
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error


def csv_rows(path: Path, delimiter: str = ",", *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, list[str]]]:
    """The header of a CSV file in UTF-8, then its rows that are not blank, each with the number of its last line.

    The columns have different names. A row need not have as many cells. Between tabs, quotes are ordinary letters.
    """
    reader = csv.reader(
        text_lines(path, max_bytes),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    try:
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise DataError(f"{path}: two columns have the same name; rename one")
        yield reader.line_num, header
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not a CSV file in UTF-8 ({error})") from error


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a CSV file, each as long as the header."""
    (_, header), *rows = csv_rows(path)
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}")
    return header, [row for _, row in rows]
