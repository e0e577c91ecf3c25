"""Agreement of the embeddings of a crop and its mirror image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.outputs import CropScore, Embedder, Scores


def mirror_agreement(embedder: Embedder) -> CropScore:
    """``(N,)`` cosine of the embeddings of each crop and its mirror image, from −1 to 1; two forward passes.

    This is the symmetry estimation of FaceQAN: Babnik, Peer, Štruc, "FaceQAN: Face Image Quality Assessment Through
    Adversarial Noise Exploration", ICPR 2022, as in the authors' code. There it is one factor of the score, next to the
    response to adversarial noise, which needs gradients; here it stands alone.
    """

    def of_crops(crops: NDArray[np.uint8]) -> Scores:
        mirrored = embedder(crops[:, :, ::-1])
        cosine: Scores = np.einsum("nd,nd->n", embedder(crops).embedding, mirrored.embedding)
        return cosine

    return of_crops
