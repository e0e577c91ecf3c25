"""Groups of faces by person: methods with and without quality, on clean faces and with poor ones and pets among them.

python eval/people_groups.py --model edgeface-xs-q --choose-on $FACERTS_DATA/faces/train-*.tar \\
    --data $FACERTS_DATA/faces/val-000000.tar --data $FACERTS_DATA/lfw \\
    --non-faces $FACERTS_DATA/pets --development '[01]$'

In the mixed sets, half of the faces are degraded at random and the non-faces are added, each as a person of its own.
Without quality, a method sees all embeddings alike. With it, what is no face is left out, faces below the model's
threshold that keeps 95% are set aside and attached to the finished groups as facerts does. The settings of each method
are chosen on people of --choose-on with images by a power law, on mixed sets with the non-faces for development: those
with the highest BCubed F. Then everything is measured on --data with the other non-faces. The 95% intervals are from
resamples of the people. Faces in no group count as groups of one. igraph is needed for communities.

--probabilities shows instead how often the probabilities that facerts gives are right, on the people of --choose-on.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from clustering import group_agreement
from common import number, open_people, parser_of, run
from numpy.typing import NDArray

from facerts.datasets import Source, Subset, open_source
from facerts.datasets.changed import degraded_at_random
from facerts.metrics.intervals import percentile_interval, subject_counts
from facerts.metrics.same_person import SamePerson
from facerts.people import group_faces, same_person_of
from facerts.people.neighbors import NEIGHBORS, similar_pairs
from facerts.report.table import markdown_table
from facerts.scoring import Scorer, load
from facerts.scoring.reasons import NOT_A_FACE

Rows = NDArray[np.int64]

KEEP = 0.95
LARGEST_SIZE, SIZE_POWER = 30, -2.0
COSINES = (0.3, 0.34, 0.38, 0.42, 0.46, 0.5, 0.54)
REPLICATES = 200
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
HEADER = ["set", "method", "quality", "BCubed F", "precision", "recall", "pairwise F", "groups", "unclear"]


@dataclass(frozen=True)
class Faces:
    """Embedded faces; ``person`` is unique for each non-face."""

    embedding: NDArray[np.float32]
    percentile: NDArray[np.float64]
    good: NDArray[np.bool_]
    is_face: NDArray[np.bool_]
    person: Rows

    def __len__(self) -> int:
        return len(self.person)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Faces:
        return Faces(*(values[rows] for values in vars(self).values()))


# Embeddings of faces, and a setting, to the group of each face; −1 for none.
Method = Callable[[NDArray[np.float32], float], Rows]


def main() -> None:
    options = arguments()
    scorer = load(options.model, threads=options.threads)
    same_person = same_person_of(scorer.recognizer.opened.description)
    development, others = non_faces(scorer, options.non_faces, options.development)
    source, person = open_people(options.choose_on)
    drawn = [draw_people(person, options.people, seed) for seed in range(options.draws)]
    used = np.unique(np.concatenate(drawn))
    faces = clean_and_degraded(scorer, Subset(source, used), person[used])
    choosing = [
        mixed(*(each.take(np.searchsorted(used, rows)) for each in faces), development, seed)
        for seed, rows in enumerate(drawn)
    ]
    if options.probabilities:
        print(probabilities_table(choosing, same_person))
        return
    cosines = {
        (name, quality): chosen(method, choosing, same_person, quality)
        for name, method in METHODS.items()
        for quality in (False, True)
    }
    rows = []
    for path in options.data:
        measured, person = open_people(path)
        faces = clean_and_degraded(scorer, measured, person)
        for name, each in ((measured.name, faces[0]), (f"{measured.name}, mixed", mixed(*faces, others, 0))):
            rows += table_rows(name, each, cosines, same_person)
    print(summary_table(rows), markdown_table(HEADER, rows), sep="\n\n")
    for (name, quality), cosine in cosines.items():
        print(f"{name}, {'with' if quality else 'without'} quality: {cosine:g}")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="edgeface-xs-q", help="Model (default: edgeface-xs-q).")
    parser.add_argument("--choose-on", nargs="+", required=True, help="Faces to choose settings on.")
    parser.add_argument("--data", action="append", default=[], help="Faces to measure on; repeatable.")
    parser.add_argument("--non-faces", required=True, help="Images of no face.")
    parser.add_argument("--development", default="[01]$", help="Names of non-faces to choose settings on.")
    parser.add_argument("--people", type=int, default=4000, help="People of each draw (default: 4000).")
    parser.add_argument("--draws", type=int, default=2, help="Draws to choose settings on (default: 2).")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model (default: 1).")
    parser.add_argument("--probabilities", action="store_true", help="How often probabilities are right.")
    return parser.parse_args()


# The faces.


def draw_people(person: Rows, people: int, seed: int) -> Rows:
    """Rows of some images of people drawn at random; sizes of one, two, three, … images fall by a power law."""
    generator = np.random.default_rng(seed)
    sizes = np.arange(1, LARGEST_SIZE + 1, dtype=np.float64) ** SIZE_POWER
    chosen = generator.permutation(np.unique(person))[:people]
    wanted = dict(zip(chosen.tolist(), generator.choice(len(sizes), people, p=sizes / sizes.sum()) + 1, strict=False))
    order = generator.permutation(len(person))
    taken: list[int] = []
    for row in order[np.isin(person[order], chosen)].tolist():
        if wanted[int(person[row])] > 0:
            wanted[int(person[row])] -= 1
            taken.append(row)
    return np.sort(np.array(taken, dtype=np.int64))


def embed(scorer: Scorer, source: Source, person: Rows) -> Faces:
    found = list(scorer.score_each(source, keep=KEEP, progress=source.name))
    return Faces(
        np.array([face.embedding for face in found], dtype=np.float32),
        np.array([face.row.percentile for face in found], dtype=np.float64),
        np.array([face.row.accepted for face in found], dtype=bool),
        np.array([NOT_A_FACE not in face.row.reasons for face in found]),
        person,
    )


def clean_and_degraded(scorer: Scorer, source: Source, person: Rows) -> tuple[Faces, Faces]:
    return embed(scorer, source, person), embed(scorer, degraded_at_random(source, seed=0), person)


def non_faces(scorer: Scorer, path: str, development: str) -> tuple[Faces, Faces]:
    """Those to choose settings on, and the others."""
    source = open_source(path)
    faces = embed(scorer, source, -1 - np.arange(len(source)))
    chosen = np.array([re.search(development, Path(source.key(i)).stem) is not None for i in range(len(source))])
    return faces.take(chosen), faces.take(~chosen)


def mixed(clean: Faces, degraded: Faces, others: Faces, seed: int) -> Faces:
    """Half of the faces degraded, and others added."""
    changed = np.random.default_rng(seed).random(len(clean)) < 0.5
    rows = np.where(changed, len(clean), 0) + np.arange(len(clean))
    return joined([joined([clean, degraded]).take(rows), others])


def joined(parts: Sequence[Faces]) -> Faces:
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Faces(*(np.concatenate(column) for column in columns))


# The methods.


def components(embedding: NDArray[np.float32], cosine: float) -> Rows:
    """Connected components of all pairs with at least a cosine."""
    return np.array(graph(embedding, cosine).connected_components().membership)


def hdbscan(embedding: NDArray[np.float32], _: float) -> Rows:
    """HDBSCAN (Campello, Moulavi, Sander 2013) as scikit-learn has it, with groups from two faces on."""
    from sklearn.cluster import HDBSCAN

    return np.asarray(HDBSCAN(min_cluster_size=2, copy=True).fit_predict(embedding.astype(np.float64)))


def whispers(embedding: NDArray[np.float32], cosine: float) -> Rows:
    """Labels that spread along edges by their weights: Chinese whispers (Biemann 2006)."""
    edges = graph(embedding, cosine)
    return np.array(edges.community_label_propagation(weights="cosine").membership)


def leiden(embedding: NDArray[np.float32], cosine: float) -> Rows:
    """Leiden (Traag, Waltman, van Eck 2019): groups whose mean cosine is above a limit, by the Potts model."""
    edges = graph(embedding, min(COSINES))
    found = edges.community_leiden(objective_function="CPM", weights="cosine", resolution=cosine, n_iterations=-1)
    return np.array(found.membership)


def infomap(embedding: NDArray[np.float32], cosine: float) -> Rows:
    """Infomap (Rosvall and Bergstrom 2008)."""
    return np.array(graph(embedding, cosine).community_infomap(edge_weights="cosine").membership)


def graph(embedding: NDArray[np.float32], cosine: float):  # type: ignore[no-untyped-def]
    import igraph

    first, second = similar_pairs(embedding, cosine, k=NEIGHBORS)
    edges = igraph.Graph(len(embedding), np.stack([first, second], axis=1))
    edges.es["cosine"] = np.einsum("ij,ij->i", embedding[first], embedding[second])
    random.seed(0)  # igraph's own
    return edges


def facerts_without_likelihood(embedding: NDArray[np.float32], cosine: float) -> Rows:
    """The groups of facerts where a mean cosine is all that counts."""
    everyone = np.full(len(embedding), 50.0)
    steep = SamePerson((needed(len(embedding)) - 1000 * cosine, 1000.0, 0.0, 0.0))
    return group_faces(embedding, everyone, np.ones(len(embedding), dtype=bool), steep).group


def needed(faces: int) -> float:
    from facerts.people.grouping import FEW_IMAGES, OTHER_IMAGES

    return float(np.log(max(faces, FEW_IMAGES) / OTHER_IMAGES))


METHODS: dict[str, Method] = {
    "connected components": components,
    "HDBSCAN": hdbscan,
    "Chinese whispers": whispers,
    "Leiden": leiden,
    "Infomap": infomap,
    "average linkage": facerts_without_likelihood,
}


def grouped(faces: Faces, method: Method, cosine: float, same_person: SamePerson, *, quality: bool) -> Rows:
    """The group of each face by a method; with quality, of the good ones, and the others attached."""
    if not quality:
        return method(faces.embedding, cosine)
    group = np.full(len(faces), -1)
    rows = np.flatnonzero(faces.good & faces.is_face)
    group[rows] = method(faces.embedding[rows], cosine)
    singles = rows[group[rows] < 0]
    group[singles] = group.max(initial=-1) + 1 + np.arange(len(singles))
    return of_faces(faces, same_person, group)


def of_faces(faces: Faces, same_person: SamePerson, group: Rows | None = None) -> Rows:
    """The groups of facerts; where groups are given, only the remaining faces are attached to them."""
    result = np.full(len(faces), -1)
    rows = np.flatnonzero(faces.is_face)
    kept = faces.take(rows)
    known = None if group is None else group[rows]
    result[rows] = group_faces(kept.embedding, kept.percentile, kept.good, same_person, group=known).group
    return result


def chosen(method: Method, sets: Iterable[Faces], same_person: SamePerson, quality: bool) -> float:
    """The cosine with the highest mean BCubed F."""
    if method is hdbscan:
        return 0.0
    group = partial(grouped, method=method, same_person=same_person, quality=quality)
    means = {
        cosine: np.mean([group_agreement(each.person, group(each, cosine=cosine)).f for each in sets])
        for cosine in COSINES
    }
    return max(means, key=lambda cosine: means[cosine])


# The tables.


def table_rows(
    name: str, faces: Faces, cosines: dict[tuple[str, bool], float], same_person: SamePerson
) -> list[list[str]]:
    rows = []
    for (method, quality), cosine in cosines.items():
        group = grouped(faces, METHODS[method], cosine, same_person, quality=quality)
        rows.append([name, method, "with" if quality else "without", *cells(faces.person, group)])
    return [*rows, [name, "**facerts**", "with", *cells(faces.person, of_faces(faces, same_person))]]


def summary_table(rows: Sequence[Sequence[str]]) -> str:
    """BCubed F of each method on each set, without and with quality."""
    sets, methods = (list(dict.fromkeys(row[column] for row in rows)) for column in (0, 1))
    f = {(row[0], row[1], row[2]): row[3].split(" ")[0] for row in rows}
    return markdown_table(
        ["BCubed F, without and with quality", *sets],
        [
            [
                method,
                *(" ".join(f.get((name, method, quality), "–") for quality in ("without", "with")) for name in sets),
            ]
            for method in methods
        ],
    )


def cells(person: Rows, group: Rows) -> list[str]:
    _, numbers = np.unique(person, return_inverse=True)
    agreement = group_agreement(person, group)
    counts = subject_counts(int(numbers.max()) + 1, REPLICATES, seed=0)
    replicates = np.array([group_agreement(person, group, each[numbers]).f for each in counts])
    return [
        number(agreement.f, percentile_interval(replicates)),
        *(number(each) for each in (agreement.precision, agreement.recall, agreement.pair_f)),
        f"{agreement.groups:,} of {agreement.people:,}",
        number(agreement.unclear, form=".3f"),
    ]


def probabilities_table(sets: Sequence[Faces], same_person: SamePerson) -> str:
    """By probability: how many members, attached or unclear faces and alike groups are of the person that they say."""
    right: dict[str, list[tuple[float, bool]]] = {"member": [], "poor face": [], "two groups": []}
    for each in sets:
        faces = each.take(each.is_face)
        result = group_faces(faces.embedding, faces.percentile, faces.good, same_person)
        person = most_frequent(result.group[faces.good], faces.person[faces.good])
        rows = zip(faces.good, result.suggested, result.probability, faces.person, strict=True)
        for good, group, probability, who in rows:
            if group >= 0:
                right["member" if good else "poor face"].append((float(probability), person[group] == who))
        right["two groups"] += [(chance, person[one] == person[two]) for one, two, chance in result.alike]
    return markdown_table(
        ["probability", *right],
        [
            [f"{low:g} to {high:g}", *(share_of(pairs, low, high) for pairs in right.values())]
            for low, high in pairwise(BINS)
        ],
    )


def share_of(pairs: Sequence[tuple[float, bool]], low: float, high: float) -> str:
    inside = [is_right for chance, is_right in pairs if low <= chance < high + (high == 1)]
    return f"{np.mean(inside):.3f} of {len(inside):,}" if inside else "–"


def most_frequent(group: Rows, person: Rows) -> dict[int, int]:
    """The person with the most faces in each group."""
    pairs, counts = np.unique(np.stack([group, person]), axis=1, return_counts=True)
    return {int(pairs[0, at]): int(pairs[1, at]) for at in np.argsort(counts, kind="stable")}


if __name__ == "__main__":
    run(main)
