import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facerts.datasets.recordio import (
    RecordReader,
    decode_record,
    encode_record,
    pack_labeled,
    unpack_image,
    unpack_labels,
    write_record,
)
from facerts.errors import DataError

MAGIC = struct.pack("<I", 0xCED7230A)


def write_set(folder, payloads, name="train"):
    with (folder / f"{name}.rec").open("wb") as rec, (folder / f"{name}.idx").open("w") as idx:
        for key, payload in enumerate(payloads):
            write_record(rec, idx, key, payload)
    return folder / f"{name}.rec"


# Payloads that contain the magic number, aligned and not, to exercise splitting.
payloads = st.lists(st.sampled_from([MAGIC, b"a", b"bc", b"def", b"ghij", bytes(8)]), max_size=12).map(b"".join)


@given(payloads)
def test_payloads_round_trip(payload):
    assert decode_record(encode_record(payload), "x") == payload


def test_the_encoding_matches_the_specification():
    # Worked out by hand from dmlc-core's recordio.h: "abcd", the magic number at byte 4, "z".
    payload = b"abcd" + MAGIC + b"z"
    first = struct.pack("<II", 0xCED7230A, 1 << 29 | 4) + b"abcd"
    last = struct.pack("<II", 0xCED7230A, 3 << 29 | 1) + b"z\0\0\0"
    assert encode_record(payload) == first + last
    assert encode_record(b"hello") == struct.pack("<II", 0xCED7230A, 5) + b"hello\0\0\0"
    # Not at a multiple of four, it does not split the record.
    assert encode_record(b"abc" + MAGIC) == struct.pack("<II", 0xCED7230A, 7) + b"abc" + MAGIC + b"\0"


def test_labels_and_images_round_trip():
    for labels in (7.0, (3.0, 4.5), (1.0, 2.0, 3.0)):
        payload = pack_labeled(labels, 12, b"image")
        np.testing.assert_array_equal(unpack_labels(payload, str), np.atleast_1d(labels)[:2])
        assert unpack_image(payload, str) == b"image"
    # flag, label, id, id2, as in MXNet's IRHeader.
    assert pack_labeled(7.0, 12, b"") == struct.pack("<IfQQ", 0, 7.0, 12, 0)


def test_random_access_by_row(tmp_path):
    contents = [bytes([number]) * (number + 1) for number in range(50)]
    contents[20] = MAGIC * 5
    reader = RecordReader(write_set(tmp_path, contents))
    assert len(reader) == 50
    for row in np.random.default_rng(0).permutation(50):
        assert reader.read(int(row)) == contents[row]


def test_the_index_may_be_in_another_order_than_the_file(tmp_path):
    contents = [bytes([number]) * 30 for number in range(9)]
    path = write_set(tmp_path, contents)
    index = path.with_suffix(".idx")
    lines = index.read_text().splitlines()
    index.write_text("\n".join(reversed(lines)) + "\n")
    reader = RecordReader(path)
    assert [reader.read(row) for row in range(9)] == contents


@pytest.mark.parametrize(
    ("end", "message"),
    [
        *((-cut, r"train\.rec: record 3 at byte 144.*truncated") for cut in (1, 5, 17, 33)),
        (100, r"train\.idx: record 3 .*byte 144.*has 100 bytes"),
    ],
)
def test_a_truncated_file_names_the_record_and_its_offset(tmp_path, end, message):
    path = write_set(tmp_path, [b"x" * 40] * 4)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(DataError, match=message):
        RecordReader(path)


def test_an_index_of_another_file_is_detected(tmp_path):
    path = write_set(tmp_path, [b"x" * 40] * 4)
    path.with_suffix(".idx").write_text("0\t0\n1\t52\n")
    with pytest.raises(DataError, match="no record begins here"):
        RecordReader(path).read(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("0\t0\n1 x\n", "line 2 is '1 x'"),
        ("0\t0\n1\n", "line 2 is '1'"),
        ("0\t-8\n", "byte -8"),
    ],
)
def test_a_broken_index_names_its_line(tmp_path, text, message):
    path = write_set(tmp_path, [b"x"])
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(DataError, match=message):
        RecordReader(path)


@pytest.mark.parametrize(
    "payload", [b"", b"short", struct.pack("<IfQQ", 1000, 0.0, 1, 0), struct.pack("<IfQQ", 2**31, 0.0, 1, 0)]
)
def test_a_payload_that_claims_more_labels_than_it_has_is_refused(payload):
    with pytest.raises(DataError, match="record 5"):
        unpack_image(payload, lambda: "record 5")
