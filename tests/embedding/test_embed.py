"""Embedding a source: batches in order, several at a time where the embedder allows it."""

import threading

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.embedding import FaceOutputs
from facerts.embedding.embed import embed_source
from facerts.errors import Error


class Means:
    """The mean color of each crop; a thread-safe one waits until a second batch is in work."""

    name, method, sha256 = "means", "unknown", ""

    def __init__(self, *, thread_safe):
        self.thread_safe = thread_safe
        self.threads = set()
        self._two = threading.Barrier(2)

    def __call__(self, crops):
        self.threads.add(threading.get_ident())
        if self.thread_safe:
            self._two.wait(timeout=30)
        return FaceOutputs(crops.reshape(len(crops), -1, 3).mean(axis=1, dtype=np.float32))


def test_a_thread_safe_embedder_works_on_two_batches_and_the_order_stays(drawn_faces):
    source = open_source(drawn_faces)
    alone, shared = Means(thread_safe=False), Means(thread_safe=True)
    also = {"first": lambda crops: crops[:, 0, 0, 0].astype(np.float32)}
    expected = np.stack([source.crop(row).reshape(-1, 3).mean(axis=0, dtype=np.float32) for row in range(64)])
    for embedder in (alone, shared):
        # Six batches, the last of them smaller.
        outputs = embed_source(embedder, source, flip=False, batch_size=11, also=also, progress=False)
        assert np.array_equal(outputs.embedding, expected)
        assert outputs.extras["first"].tolist() == [float(source.crop(row)[0, 0, 0]) for row in range(64)]
    assert alone.threads == {threading.get_ident()}
    assert len(shared.threads) == 2


@pytest.mark.parametrize("thread_safe", [False, True])
def test_an_error_of_the_embedder_ends_the_embedding(drawn_faces, thread_safe):
    class Broken(Means):
        def __call__(self, crops):
            raise Error("no")

    with pytest.raises(Error, match="no"):
        embed_source(
            Broken(thread_safe=thread_safe),
            open_source(drawn_faces),
            flip=False,
            batch_size=8,
            progress=False,
        )
