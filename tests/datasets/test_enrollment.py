import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.datasets.template_benchmark import templates_from_identities
from facerts.errors import DataError

# People 0 to 5 have four images, 6 to 9 two, 10 and 11 one.
IMAGES = [4] * 6 + [2] * 4 + [1] * 2


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("enrollment") / "people"
    for identity, images in enumerate(IMAGES):
        write_synthetic_faces(folder, identities=1, images=images, first_identity=identity)
    return open_source(folder)


def enrolled_people(benchmark):
    return set(benchmark.galleries[0].subjects.tolist())


@pytest.mark.parametrize(("enrolled", "able"), [(1, range(10)), (2, range(6)), (3, range(6))])
def test_every_image_is_in_the_gallery_or_a_probe(people, enrolled, able):
    benchmark = templates_from_identities(people, enrolled=enrolled, unknown=0.5, seed=4)
    gallery, probes = benchmark.galleries[0], benchmark.probes
    assert enrolled_people(benchmark) < set(able)
    assert len(gallery.templates) == len(able) // 2
    images_of = [np.flatnonzero(benchmark.template == row) for row in range(len(benchmark.template_ids))]
    for row, subject in zip(gallery.templates, gallery.subjects, strict=True):
        assert people.labels[images_of[row]].tolist() == [subject] * enrolled
    for row, subject in zip(probes.templates, probes.subjects, strict=True):
        assert people.labels[images_of[row]].tolist() == [subject]
    assert sorted([*gallery.templates, *probes.templates]) == list(range(len(benchmark.template_ids)))
    assert enrolled_people(benchmark) <= set(probes.subjects.tolist())


@pytest.mark.parametrize(("unknown", "known"), [(0.0, 10), (0.2, 8), (0.75, 2), (0.9, 1)])
def test_the_share_of_unknown_people_refers_to_the_eligible_ones(people, unknown, known):
    assert len(enrolled_people(templates_from_identities(people, unknown=unknown))) == known


def test_the_seed_determines_who_is_enrolled_and_with_which_images(people):
    dealt = [templates_from_identities(people, enrolled=2, seed=seed) for seed in (1, 1, *range(2, 12))]
    np.testing.assert_array_equal(dealt[0].template, dealt[1].template)
    assert len({frozenset(enrolled_people(benchmark)) for benchmark in dealt}) > 1
    # Over the seeds, each of the first person's four images is enrolled once.
    rows = [benchmark.template[:4] for benchmark in dealt if 0 in enrolled_people(benchmark)]
    assert np.any([template < 3 for template in rows], axis=0).all()


def test_a_note_describes_the_split(people):
    benchmark = templates_from_identities(people, enrolled=2, unknown=0.5, seed=9)
    assert benchmark.notes == (
        "3 of 12 people were enrolled with 2 images each, sampled with seed 9; "
        "6 probes are of them, 22 of people not enrolled.",
    )


@pytest.mark.parametrize(
    ("enrolled", "unknown", "message"),
    [
        (4, 0.5, r"people: nobody would be enrolled: 0 of 12 people have the required 5 images"),
        (1, 1.0, r"people: nobody would be enrolled: 10 of 12 people have the required 2 images"),
        (0, 0.5, r"people: cannot enroll 0 images .*; enroll at least 1"),
        (1, 1.5, r"people: .* a share of 1\.5 unknown"),
    ],
)
def test_a_gallery_of_nobody_is_refused(people, enrolled, unknown, message):
    with pytest.raises(DataError, match=message):
        templates_from_identities(people, enrolled=enrolled, unknown=unknown)


def test_a_gallery_of_everybody_is_refused(drawn_faces):
    with pytest.raises(DataError, match=r"all 8 people would be enrolled.* raise the share .* above 0\.05"):
        templates_from_identities(open_source(drawn_faces), unknown=0.05)


def test_a_source_without_identities_is_refused(non_faces):
    with pytest.raises(DataError, match="this source has none"):
        templates_from_identities(open_source(non_faces))
