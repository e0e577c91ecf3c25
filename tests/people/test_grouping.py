import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from facerts.errors import DataError, ModelError
from facerts.metrics.same_person import SamePerson
from facerts.onnx.contract import SCHEMA, Description
from facerts.people.grouping import FEW_IMAGES, OTHER_IMAGES, group_faces, same_person_of

# With few images, faces are grouped from a mean cosine of 0.5 on.
NEEDED = float(np.log(FEW_IMAGES / OTHER_IMAGES))
RATIO = SamePerson((NEEDED - 20 * 0.5, 20.0, 0.0, 0.0))
GOOD, POOR = 80.0, 1.0


def people(sizes, spread=0.05, seed=0):
    """Embeddings of some faces of some people, and the person of each."""
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(len(sizes)), sizes)
    centers = random.normal(size=(len(sizes), 64))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    faces = centers[person] + spread * random.normal(size=(len(person), 64))
    return (faces / np.linalg.norm(faces, axis=1, keepdims=True)).astype(np.float32), person


def grouped(embedding, percentile=None, **options):
    percentile = np.full(len(embedding), GOOD) if percentile is None else percentile
    return group_faces(embedding, percentile, percentile > 5, RATIO, **options)


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_faces_of_equal_quality_are_those_of_average_linkage(seed):
    embedding, _ = people([6, 5, 4, 3, 2, 1, 1], spread=0.11, seed=seed)
    tree = linkage(np.clip(1 - (embedding @ embedding.T)[np.triu_indices(22, 1)], 0, 2), "average")
    expected = fcluster(tree, 0.5, "distance")
    found = grouped(embedding).group
    found = np.where(found < 0, 22 + np.arange(22), found)  # whoever is in no group is alone
    np.testing.assert_array_equal(expected[:, None] == expected, found[:, None] == found)
    assert 1 < len(np.unique(found)) < 22


def test_larger_groups_have_lower_numbers():
    embedding, person = people([2, 7, 4])
    result = grouped(embedding)
    assert result.group[person == 1].tolist() == [0] * 7
    assert result.group[person == 2].tolist() == [1] * 4
    assert result.group[person == 0].tolist() == [2] * 2
    assert (result.probability > 0.99).all()


def test_a_poor_face_between_two_people_does_not_join_them():
    axes = np.eye(2, 8, dtype=np.float32)
    faces = np.vstack([axes[[0, 0, 0, 1, 1, 1]], (axes[0] + axes[1]) / np.sqrt(2)])
    result = grouped(faces, np.append(np.full(6, GOOD), POOR))
    assert len(set(result.group[:6].tolist())) == 2
    assert result.group[6] == -1
    assert result.suggested[6] in (0, 1)
    assert result.probability[6] == pytest.approx(0.5, abs=0.02)


def test_a_poor_face_is_attached_to_the_person_that_it_is_like_or_stays_unclear():
    embedding, _ = people([3, 3, 1], spread=0.01)
    percentile = np.full(7, GOOD)
    percentile[[0, 6]] = POOR
    result = grouped(embedding, percentile)
    assert result.group[0] == result.group[1] == result.group[2]
    assert result.probability[0] > 0.99
    assert result.group[6] == -1


def test_poor_faces_form_no_group_of_their_own():
    embedding, _ = people([4], spread=0.01)
    result = grouped(embedding, np.full(4, POOR))
    assert result.group.tolist() == [-1] * 4
    assert result.suggested.tolist() == [-1] * 4


def test_what_was_decided_holds_against_every_likeness():
    embedding, person = people([4, 4], spread=0.01)
    one, other = np.flatnonzero(person == 0), np.flatnonzero(person == 1)
    joined = grouped(embedding, together=[np.array([one[0], other[0]])])
    assert joined.group[one[0]] == joined.group[other[0]]
    parted = grouped(embedding, apart=[(one[:1], one[1:])])
    assert parted.group[one[0]] != parted.group[one[1]]
    assert len(set(parted.group[one[1:]].tolist())) == 1
    # The first three are like the one that is apart from the last, so they may join either, but not both.
    assert len(set(grouped(embedding, apart=[(one[:1], one[3:])]).group[one].tolist())) == 2


def test_unlike_faces_of_one_person_each_draw_their_like():
    """A child and the adult that it became are no more alike than strangers; new faces of both are of one person."""
    embedding, person = people([4, 4, 3], spread=0.01)
    child, adult = np.flatnonzero(person == 0), np.flatnonzero(person == 1)
    result = grouped(embedding, together=[np.array([child[0], adult[0]])])
    assert len(set(result.group[person < 2].tolist())) == 1
    assert (result.probability > 0.99).all()
    again = grouped(embedding, group=np.where(np.isin(np.arange(11), [*child[:2], *adult[:2]]), 0, -1))
    assert set(again.group[person < 2].tolist()) == {0}


@pytest.mark.parametrize("seed", range(4))
def test_decisions_and_groups_hold_whatever_else_is_alike(seed):
    """Random decisions on faces that are hard to tell apart."""
    random = np.random.default_rng(seed)
    embedding, person = people([8, 8, 8, 8], spread=0.12, seed=seed)
    together = [random.choice(np.flatnonzero(person == each), 3, replace=False) for each in range(3)]
    apart = [(together[0], together[1]), (together[1][:1], together[2])]
    known = np.full(32, -1)
    known[random.choice(np.flatnonzero(person == 3), 3, replace=False)] = [4, 4, 9]
    percentile = np.where(random.random(32) < 0.3, POOR, GOOD)
    result = grouped(embedding, percentile, together=together, apart=apart, group=known)
    for rows in together:
        assert len(set(result.group[rows].tolist())) == 1
    for one, other in apart:
        assert not set(result.group[one].tolist()) & set(result.group[other].tolist())
    assert result.group[known >= 0].tolist() == known[known >= 0].tolist()


def test_faces_of_one_photo_are_of_different_people_unless_they_are_surely_not():
    axes = np.eye(3, 8, dtype=np.float32)
    near = 0.7 * axes[0] + np.sqrt(1 - 0.7**2) * axes[1]
    faces = np.stack([axes[0], near, axes[2], axes[2]])
    photos = np.array([0, 0, 1, 1])
    assert grouped(faces).group.tolist() == [0, 0, 1, 1]
    apart = grouped(faces, photo=photos).group
    assert apart[0] != apart[1]
    assert apart[2] == apart[3]
    said = grouped(faces, photo=photos, together=[np.array([0, 1])]).group
    assert said[0] == said[1]
    # Another photo's face is like both, and joins one of them.
    both = (axes[0] + near) / np.linalg.norm(axes[0] + near)
    third = grouped(np.vstack([faces, both]), photo=np.append(photos, 2)).group
    assert third[0] != third[1]
    assert third[4] in (third[0], third[1])


def test_a_poor_face_is_not_attached_where_it_must_not_be():
    embedding, _ = people([4], spread=0.01)
    percentile = np.array([POOR, GOOD, GOOD, GOOD])
    result = grouped(embedding, percentile, apart=[(np.array([0]), np.array([1, 2, 3]))])
    assert result.group.tolist() == [-1, 0, 0, 0]


def test_groups_that_exist_keep_their_faces_and_numbers():
    embedding, person = people([3, 3, 3, 2], spread=0.01)
    known = np.full(11, -1)
    known[[0, 1]], known[[3]], known[[4]] = 7, 2, 5
    result = grouped(embedding, group=known)
    assert result.group[:3].tolist() == [7, 7, 7]
    assert result.group[3] == 2
    assert result.group[4] == 5
    assert result.group[5] in (2, 5)
    assert result.group[person == 2].tolist() == [8] * 3
    assert result.group[person == 3].tolist() == [9] * 2


def test_groups_that_are_nearly_alike_enough_are_named():
    axes = np.eye(3, 8, dtype=np.float32)
    nearly = 0.45 * axes[0] + np.sqrt(1 - 0.45**2) * axes[1]
    ((*pair, probability),) = grouped(np.stack([axes[0], axes[0], nearly, axes[2]])).alike
    assert sorted(pair) == [0, 1]
    assert probability == pytest.approx(1 / (1 + np.exp(20 * 0.05)), abs=1e-4)


def test_a_contradiction_is_refused():
    embedding, _ = people([3])
    with pytest.raises(DataError, match="face 0 is to be together with a face, and apart from it"):
        grouped(embedding, together=[np.array([0, 1])], apart=[(np.array([0]), np.array([1]))])


def test_no_faces_and_one_face():
    assert grouped(np.empty((0, 8), dtype=np.float32)).group.tolist() == []
    assert grouped(np.eye(1, 8, dtype=np.float32)).group.tolist() == [0]


def test_a_model_without_the_ratio_says_what_to_do():
    with pytest.raises(ModelError, match="facerts calibrate --model MODEL --data people/"):
        same_person_of(Description(schema=SCHEMA, method="arcface", outputs={"embedding": "e"}, quality="norm"))
