"""What is meant for very many people, on drawn data as large as that: classes, metrics, groups, galleries.

    python tools/bench_scale.py metrics --rounds 2

What has a peak of memory runs in a process of its own.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import time
from functools import partial
from importlib import import_module, util
from itertools import pairwise
from pathlib import Path

import numpy as np
from measuring import alternate, in_process, machine, peak_mib, ratios, run_benchmark, seconds_of, spread

from facerts.galleries import Enrollments
from facerts.metrics.all_pairs import all_pairs, far_intervals
from facerts.metrics.identification import search
from facerts.metrics.pair_intervals import verification_intervals
from facerts.metrics.same_person import fit_same_person, quality_level
from facerts.metrics.verification import roc
from facerts.people import group_faces
from facerts.people.neighbors import NEIGHBORS, nearest


def unit(vectors):
    """Rows of unit length."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# The softmax over all identities.

IMPLEMENTATIONS = ["B x C", "a tenth of B x C", "in chunks", "in chunks, gathered", "a tenth in chunks"]
TENTH, CHUNK = 0.1, 16_384
SCALE, MARGIN = 64.0, 0.5


def classes(identities, implementations, batch, size, steps, momentum, device):
    """Memory and time of the softmax over all identities, by their number and by implementation.

    Peak memory is that above the embeddings and centers; the time is the median of forward pass, backward pass and SGD
    update, after a warm-up step. The implementations:

    - "B x C": the usual one, with all logits at once;
    - "a tenth of B x C": the same for a tenth of the centers, sampled in each step, with a gradient and an update for
      these alone, as in Partial FC;
    - "in chunks": ours, which updates the centers in the backward pass;
    - "a tenth in chunks": ours for a sampled tenth;
    - "in chunks, gathered": ours with the gradient of all centers, which clipping, AdamW and accumulation need.
    """
    if unknown := set(implementations) - set(IMPLEMENTATIONS):
        raise SystemExit(f"--implementations {min(unknown)}: must be of {', '.join(IMPLEMENTATIONS)}")
    print(f"batch {batch}, embedding size {size}, {device}, {machine()}")
    rows = []
    for count in identities:
        for implementation in implementations:
            row = f"{count:>9,} {implementation:20}"
            try:
                result = in_process(softmax_steps, implementation, count, batch, size, steps, momentum, device)
            except subprocess.CalledProcessError as error:
                print(f"{row}: failed ({error.stderr.strip().splitlines()[-1:]})", flush=True)
                continue
            rows.append({"identities": count, "implementation": implementation, **result})
            print(
                f"{row}: {result['mib']:>9,.0f} MiB above {result['base_mib']:,.0f}, "
                f"{result['ms']:>9,.1f} ms per step, loss {result['loss']:.3f}",
                flush=True,
            )
    return {"batch": batch, "size": size, "rows": rows}


def softmax_steps(implementation, identities, batch, size, steps, momentum, where):
    """Memory in MiB, time in ms and loss of one implementation."""
    import torch

    from facerts.losses.margin import additive_angular
    from facerts.losses.partial_fc import PartialFC, RowUpdates

    device = torch.device(where)
    torch.manual_seed(0)
    ours, tenth = "chunks" in implementation, "tenth" in implementation
    centers = PartialFC(identities, size, chunk=CHUNK, sample=TENTH if ours and tenth else None).to(device)
    embedding = torch.randn(batch, size, device=device, requires_grad=True)
    labels = torch.randint(0, identities, (batch,), device=device)
    optimizer = torch.optim.SGD(centers.parameters(), lr=0.1, momentum=momentum, fused=True)
    if ours and "gathered" not in implementation:
        centers.row_updates = RowUpdates(optimizer, centers.weight)

    def peak():
        return torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else peak_mib()

    def in_chunks():
        scale = torch.tensor(SCALE, device=device)
        return centers(embedding, labels, lambda cosine: additive_angular(cosine, MARGIN), scale).mean()

    def whole(weight, labels):
        from torch.nn import functional as F

        logits = F.linear(F.normalize(embedding), F.normalize(weight)).clamp(-1, 1)
        index = labels.unsqueeze(1)
        target = additive_angular(logits.gather(1, index).squeeze(1), MARGIN)
        return F.cross_entropy(logits.scatter(1, index, target.unsqueeze(1)) * SCALE, labels)

    def step():
        if ours or not tenth:
            loss = in_chunks() if ours else whole(centers.weight, labels)
            loss.backward()
            return loss
        # A sample of the centers is copied out, updated and copied back.
        order = torch.rand(identities, device=device)
        order[labels] = 2.0
        indices = order.topk(int(TENTH * identities)).indices.sort().values
        sample = centers.weight.detach()[indices].requires_grad_()
        loss = whole(sample, torch.searchsorted(indices, labels))
        loss.backward()
        torch.optim.SGD([sample], lr=0.1, fused=True).step()
        centers.weight.data[indices] = sample.detach()
        return loss

    base, times = peak(), []
    for number in range(steps + 1):
        start = time.perf_counter()
        centers.begin(number)
        optimizer.zero_grad(set_to_none=True)
        embedding.grad = None
        loss = step()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    ms = 1000 * statistics.median(times[1:])
    return {"mib": peak() - base, "base_mib": base, "ms": ms, "loss": loss.item()}


# Metrics.

FARS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
PAIRS, GENUINE, SUBJECTS = 15_658_489, 19_557, 3_531
PEOPLE, IMAGES, PLAIN_ROWS, BLOCK = 5_000, 9, 2_000, 1_000
GALLERY, PROBES, PLAIN_PROBES, BEST, SIZE = 200_000, 10_000, 500, 10, 128


def metrics(quick, rounds):
    """The metrics on sets as large as they are meant for, beside the plain way to the same numbers.

    ijbc     IJB-C's 1:1 pairs, 15,658,489 of 3,531 people; roc with AUROC, EER, TAR at 1e-6 to 1e-1 beside roc_curve
    billion  every pair of 45,000 images of 5,000 people, 1.01e9 of them impostors
    searches the ten best of a gallery of 200,000 for 10,000 probes; faiss: IndexFlatIP

    Drawing (and filling an index) does not count in the seconds. Peak memory is the whole process's; how high it was
    when the clock started stands beside it. The plain loops take a part of the rows, enough for a rate; of the pairs
    the first rows, where the upper triangle wastes nearly none.
    """
    print(f"{machine()}, median of {rounds} rounds (lowest to highest)")
    for part, names in PARTS.items():
        print(part.__name__)
        unit_of = "searches/s" if part is searches else "pairs/s"
        present = [name for name in names if util.find_spec(PLAIN.get(name, "numpy"))]
        candidates = {name: partial(in_process, part, 10 if quick else 1, name) for name in present}
        taken = alternate(candidates, rounds, warm_up=0)
        rates = {name: [items / seconds for items, _, seconds, _ in runs] for name, runs in taken.items()}
        for name, runs in taken.items():
            _, before, seconds, peaks = zip(*runs, strict=True)
            print(
                f"  {name:25} {spread(seconds):>24} s {statistics.median(rates[name]):13,.0f} {unit_of:10}"
                f"  peak {max(peaks):6,.0f} MiB ({max(before):,.0f} at the start)"
            )
        for name in (name for name in names if name in PLAIN):
            if name in present:
                print(f"  {names[0]} / {name}, {unit_of}: {spread(ratios(rates[names[0]], rates[name]))}")
            else:
                print(f"  {name:25} skipped: {PLAIN[name]} cannot be imported")


def clocked(work):
    """Number of items that some work returns, peak of memory in MiB before, seconds, and peak after."""
    before, began = peak_mib(), time.perf_counter()
    items = work()
    return items, before, time.perf_counter() - began, peak_mib()


def draw_unit(people, images, seed=1):
    """``(people * images, SIZE)`` each person's center, the same with any seed, plus noise."""
    center = np.random.default_rng(0).standard_normal((people, SIZE), dtype=np.float32)
    noise = np.random.default_rng(seed).standard_normal((people * images, SIZE), dtype=np.float32)
    noise += np.repeat(center, images, axis=0)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return noise


def ijbc(share, how):
    random, same, subjects = np.random.default_rng(0), np.zeros(PAIRS // share, dtype=bool), None
    same[random.choice(len(same), GENUINE // share, replace=False)] = True
    scores = np.float32(0.1) * random.standard_normal(len(same), dtype=np.float32)
    scores[same] += np.float32(0.5)
    if how == "intervals over people":
        people = SUBJECTS // share
        subjects = np.random.default_rng(1).integers(0, people, (len(same), 2), dtype=np.int32)
        subjects[:, 1] = (subjects[:, 0] + 1 + subjects[:, 1] % (people - 1)) % people
        subjects[same, 1] = subjects[same, 0]
    roc_curve = import_module("sklearn.metrics").roc_curve if how == "scikit-learn" else None

    def work():
        if how == "roc":
            curve = roc(scores, same)
            curve.auroc(), curve.eer(), [curve.tar_at_far(far) for far in FARS]
        elif roc_curve:
            roc_curve(same, scores, drop_intermediate=False)
        else:
            verification_intervals(scores, same, FARS, subjects=subjects)
        return len(scores)

    return clocked(work)


def billion(share, how):
    people = np.repeat(np.arange(PEOPLE // share), IMAGES)
    embedding, numbers = draw_unit(PEOPLE // share, IMAGES), np.arange(len(people))

    def work():
        if how != "plain NumPy":
            pairs = all_pairs(embedding, people)
            if how == "all_pairs, far_intervals":
                far_intervals(pairs, FARS)
            return pairs.impostors
        counts = np.zeros(65536, dtype=np.int64)
        for rows in numbers[: PLAIN_ROWS // share].reshape(-1, BLOCK // share):
            scores = embedding[rows] @ embedding.T
            chosen = scores[(numbers > rows[:, None]) & (people != people[rows, None])]
            counts += np.histogram(chosen, bins=65536, range=(-1.0, 1.0))[0]
        return int(counts.sum())

    return clocked(work)


def searches(share, how):
    asked = PLAIN_PROBES if how == "plain argsort" else PROBES
    gallery, probes = draw_unit(GALLERY // share, 1), draw_unit(asked // share, 1, seed=2)
    if how == "faiss":
        index = import_module("faiss").IndexFlatIP(SIZE)
        index.add(gallery)

    def work():
        if how == "search":
            search(gallery, probes, BEST)
        elif how == "plain argsort":
            np.argsort(-(probes @ gallery.T), axis=1)[:, :BEST]
        else:
            index.search(probes, BEST)
        return len(probes)

    return clocked(work)


# The first of each part is set against those of its names that stand among the plain ones, with what they need.
PARTS = {
    ijbc: ("roc", "intervals over pairs", "intervals over people", "scikit-learn"),
    billion: ("all_pairs", "all_pairs, far_intervals", "plain NumPy"),
    searches: ("search", "plain argsort", "faiss"),
}
PLAIN = {"scikit-learn": "sklearn", "plain NumPy": "numpy", "plain argsort": "numpy", "faiss": "faiss"}


# Groups of faces.

FACE_SIZE, FACE_DECAY = 512, 0.314
LARGEST, FITTED, NEAREST, THRESHOLD = 200, 2_000, 1_000, 5.0
# The share of a face that is its person's, by quality level, and how much it differs between images.
BEST_SHARE, SHARE_BY_LEVEL, SHARE_SPREAD, SMALLEST = 0.84, 0.19, 0.13, 0.1


def people(faces):
    """Groups of very many faces: seconds, memory, agreement with the people, and what an index misses.

    Embeddings are drawn: people with images by a power law (exponent 2, up to 200), around centers whose variance falls
    by a power law too, so that cosines of different people have the mean 0 and the standard deviation 0.076 of
    EdgeFace-XS on held-out people, and those of one person a mean from 0.3 (poor faces) to 0.65 and a standard
    deviation near 0.13; there are fewer look-alikes than among real people. The likelihood ratio is fitted on 2,000
    other drawn faces.
    """
    print(machine())
    for exact in (True, False):
        measured = []
        for count in faces:
            result = in_process(grouped, count, exact)
            measured.append((count, result["seconds"]))
            print(
                f"{count:,} faces of {result['people']:,} people, {'compared with all' if exact else 'HNSW'}: "
                f"{result['seconds']:.1f} s, {result['mib']:,.0f} MiB at most ({result['embeddings_mib']:,.0f} MiB of "
                f"them the embeddings), BCubed F {result['f']:.4f} (precision {result['precision']:.4f}, recall "
                f"{result['recall']:.4f}), {result['found']:.4f} of the {NEIGHBORS} nearest found"
            )
        for (less, before), (more, after) in pairwise(measured):
            print(f"  from {less:,} to {more:,}: time grows with the power {math.log(after / before, more / less):.2f}")


def grouped(faces, exact):
    """Group drawn faces."""
    embedding, percentile, person = draw_faces(FITTED, seed=0)
    first, second = np.triu_indices(FITTED, 1)
    level, cosine = quality_level(percentile), (embedding @ embedding.T)[first, second]
    ratio = fit_same_person(cosine, level[first], level[second], person[first] == person[second])
    embedding, percentile, person = draw_faces(faces, seed=1)
    began = time.perf_counter()
    groups = group_faces(embedding, percentile, percentile >= THRESHOLD, ratio, exact=exact)
    seconds = time.perf_counter() - began
    mib = peak_mib()
    precision, recall = bcubed(person, groups.group)
    best, found = (nearest(embedding, embedding[:NEAREST], NEIGHBORS, exact=way).templates for way in (True, exact))
    shared = [len(np.intersect1d(*rows)) for rows in zip(best, found, strict=True)]
    return {
        "people": len(np.unique(person)),
        "precision": precision,
        "recall": recall,
        "f": 2 * precision * recall / (precision + recall),
        "seconds": seconds,
        "mib": mib,
        "embeddings_mib": embedding.nbytes / 2**20,
        "found": float(np.mean(shared)) / best.shape[1],
    }


def bcubed(person, group):
    """Mean precision and recall of each face's own group (Amigó et al. 2009); those in no group, −1, are alone."""
    alone = -1 - np.arange(len(group))
    _, people, of_person = np.unique(person, return_inverse=True, return_counts=True)
    _, groups, in_group = np.unique(np.where(group < 0, alone, group), return_inverse=True, return_counts=True)
    _, cell, in_both = np.unique(people * len(groups) + groups, return_inverse=True, return_counts=True)
    both = in_both[cell]
    return float(np.mean(both / in_group[groups])), float(np.mean(both / of_person[people]))


def draw_faces(faces, seed):
    """Embeddings ``(N, 512)``, percentiles of quality ``(N,)`` and people ``(N,)``."""
    random = np.random.default_rng(seed)
    chance = np.arange(1, LARGEST + 1, dtype=np.float64) ** -2
    sizes = random.choice(LARGEST, faces, p=chance / chance.sum()) + 1
    person = np.repeat(np.arange(faces), sizes)[:faces]
    spectrum = (np.arange(1, FACE_SIZE + 1, dtype=np.float32) ** -FACE_DECAY).astype(np.float32)
    percentile = random.uniform(0, 100, faces)
    share = BEST_SHARE + SHARE_BY_LEVEL * quality_level(percentile) + random.normal(0, SHARE_SPREAD, faces)
    share = np.clip(share, SMALLEST, 1)[:, None].astype(np.float32)
    centers = unit(random.standard_normal((person[-1] + 1, FACE_SIZE), dtype=np.float32) * spectrum)
    noise = unit(random.standard_normal((faces, FACE_SIZE), dtype=np.float32) * spectrum)
    embedding = unit(share * centers[person] + np.sqrt(1 - share**2) * noise)
    order = random.permutation(faces)
    return embedding[order], percentile[order], person[order]


# Galleries in PostgreSQL.

# The variances fall so that people are as much alike as 721 real ones are to the model that ships, whose cosines have a
# standard deviation of 0.109 in 128 dimensions.
DECAY, GROUP_SHARE, GROUP = -0.5, 0.2, 1000
COSINES = (0.4, 0.9)
# Where the exact search of the database takes long, only some probes are searched for.
EXACT_ROWS = 20_000_000
EXACT_THRESHOLD = 200_000


def gallery(address, people, size, probes, ef_search, seed):
    """Galleries of many people in PostgreSQL: how long they take to build and to search, and whom the index misses.

    For each number of people: rows and index are written (seconds, bytes); then people are searched for one at a time,
    in memory with NumPy, as a gallery in a file does, exactly in the database, and in its index at several ef_search.
    Recall@1 is the share of probes for which a search names the same person as NumPy. Half of the probes are of people
    in the gallery, half of strangers, whose most similar person is harder to find.

    Templates are normally distributed and put on the unit sphere. The variance of dimension i is proportional to a
    power of i, and a part of it is common to each thousand people, so that some people are much alike. A probe has a
    cosine of 0.4 to 0.9 to its person's template. The spread of the cosines between people is printed.

    Each person has one image. The gallery of the address is replaced, and stays. ``python -m tests.postgres_server``
    runs a server to measure with.
    """
    from facerts.galleries.postgres_store import PostgresStore

    print(f"{machine()}; embeddings of {size} numbers; searches take milliseconds")
    store = PostgresStore(address)
    for count in people:
        random = np.random.default_rng(seed)
        templates, strangers = draw_people(random, count, size, probes // 2)
        enrolled = draw_probes(random, templates, probes // 2)
        alike = (strangers @ templates[:1000].T).std()
        print(f"\n{count:,} people, whose cosines have a standard deviation of {alike:.3f}\n")
        _measure_gallery(store, templates, np.concatenate([enrolled, strangers]), ef_search)
    store.close()


def _measure_gallery(store, templates, probes, ef_search):
    from facerts.galleries import postgres_store
    from facerts.galleries import postgres_tables as tables

    names = np.array([f"{row:07d}" for row in range(len(templates))])
    unknown, none = np.full(len(names), np.nan, dtype=np.float32), np.full(len(names), "")
    everybody = Enrollments(names, names, templates, unknown, unknown, none, "drawn", "0" * 64)
    # The index is timed by itself.
    index_from, postgres_store.INDEX_FROM = postgres_store.INDEX_FROM, len(templates) + 1
    rows = seconds_of(lambda: store.replace(everybody))
    postgres_store.INDEX_FROM = index_from
    in_memory, in_database = partial(everybody.search, k=1), partial(store.search, k=1)
    right = [found[0][0] for found in in_memory(probes)]
    print("| search | median | 95% | recall@1, enrolled | recall@1, strangers |\n| --- | --- | --- | --- | --- |")
    _time_searches("NumPy, in memory", in_memory, probes, right)
    step = max(1, len(templates) * len(probes) // EXACT_ROWS)
    _time_searches("PostgreSQL, exact", in_database, probes[::step], right[::step])
    with store.connections.transaction(read_only=False) as connection:
        index = seconds_of(lambda: tables.make_index(connection, tables.read_state(connection).size))
    usual = tables.MIN_EF_SEARCH, tables.MAX_EF_SEARCH
    for ef in ef_search:
        tables.MIN_EF_SEARCH = tables.MAX_EF_SEARCH = ef
        _time_searches(f"PostgreSQL, ef_search {ef}", in_database, probes, right)
    tables.MIN_EF_SEARCH, tables.MAX_EF_SEARCH = usual
    threshold, again = (seconds_of(lambda: store.threshold(0.01, ())) for _ in range(2))
    print(f"\nrows {rows:,.1f} s; index {index:,.1f} s; threshold {threshold:,.1f} s, then {again:.4f} s")
    exact = f", exactly {everybody.threshold(0.01, ()).cosine:.4f}" if len(templates) <= EXACT_THRESHOLD else ""
    print(f"threshold at FPIR 0.01: {store.threshold(0.01, ()).cosine:.4f}{exact}")
    # Bytes of tables and of the index of templates.
    text = (
        "SELECT relname, CASE relkind WHEN 'r' THEN pg_total_relation_size(oid) ELSE pg_relation_size(oid) END "
        "FROM pg_class WHERE oid IN ('{schema}.people'::regclass, '{schema}.enrollments'::regclass) OR oid IN "
        "(SELECT indexrelid FROM pg_index WHERE indrelid = '{schema}.people'::regclass) ORDER BY relname"
    )
    with store.connections.transaction() as connection:
        sizes = connection.run(text).fetchall()
    print("; ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in sizes), flush=True)


def draw_people(random, people, size, strangers):
    """Templates of people and of strangers, of unit length."""
    deviation = (np.arange(1, size + 1) ** (DECAY / 2)).astype(np.float32)
    total = people + strangers
    centers = random.standard_normal((-(-total // GROUP), size), dtype=np.float32)
    vectors = random.standard_normal((total, size), dtype=np.float32) * np.float32(np.sqrt(1 - GROUP_SHARE))
    vectors += np.float32(np.sqrt(GROUP_SHARE)) * centers[random.permutation(total) // GROUP]
    drawn = unit(vectors * deviation)
    return drawn[:people], drawn[people:]


def draw_probes(random, templates, probes):
    """Images of some of the people."""
    chosen = templates[random.integers(len(templates), size=probes)]
    noise = random.standard_normal(chosen.shape, dtype=np.float32)
    noise -= np.sum(noise * chosen, axis=1, keepdims=True) * chosen
    cosine = random.uniform(*COSINES, size=(probes, 1)).astype(np.float32)
    return cosine * chosen + np.sqrt(1 - cosine**2) * unit(noise)


def _time_searches(name, search, probes, right):
    """A row of the table; the first half of the probes are of people in the gallery."""
    search(probes[:20])
    seconds, same = [], []
    for probe, person in zip(probes, right, strict=True):
        began = time.perf_counter()
        ((best,),) = search(probe[None])
        seconds.append(time.perf_counter() - began)
        same.append(best[0] == person)
    half = len(same) // 2
    middle, high = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
    shares = f"{np.mean(same[:half]):.4f} | {np.mean(same[half:]):.4f}"
    print(f"| {name} | {1000 * middle:.2f} | {1000 * high:.2f} | {shares} |", flush=True)


BENCHMARKS = {
    classes: {
        "identities": ([int], "numbers of identities"),
        "--implementations": (IMPLEMENTATIONS, "which of them"),
        "--batch": (128, "batch size"),
        "--size": (512, "embedding size"),
        "--steps": (3, "number of timed steps"),
        "--momentum": (0.0, "momentum of SGD"),
        "--device": ("cpu", "cpu or cuda"),
        "--json": (Path, "file for the numbers"),
    },
    metrics: {
        "--quick": (False, "a tenth of the sizes, to see that it runs"),
        "--rounds": (3, "rounds to measure"),
    },
    people: {"faces": ([int], "numbers of faces")},
    gallery: {
        "address": (str, "of the database, with the name of a gallery that may be replaced"),
        "--people": ([10_000], "numbers of people"),
        "--size": (128, "numbers of an embedding"),
        "--probes": (1000, "number of searches behind a median"),
        "--ef-search": ([100, 200, 400, 800], "how far searches in the index look"),
        "--seed": (0, "of all that is drawn"),
    },
}


if __name__ == "__main__":
    run_benchmark(__doc__, BENCHMARKS)
