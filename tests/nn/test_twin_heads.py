import pytest
import torch
from torch import nn

from facerts.nn.twin_heads import FaceNetwork, HeadSpec


class Pixels(nn.Module):
    """The first pixels of an image, times weights."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, images):
        return images.flatten(1)[:, : len(self.weight)] * self.weight


def network(**heads):
    torch.manual_seed(0)
    return FaceNetwork(Pixels(7), 7, 4, heads).double()


def test_a_head_on_the_embedding_is_linear_in_what_its_batch_norm_gives():
    faces = network(r=HeadSpec(1, reads="embedding"), z=HeadSpec(2))
    images = torch.randn(5, 3, 112, 112, dtype=torch.float64)
    outputs = faces.train()(images)
    features = images.flatten(1)[:, :7] * faces.trunk.weight
    (linear, norm), (r,), (z,) = faces.embedding, faces.heads["r"], faces.heads["z"]
    raw = features @ linear.weight.T + linear.bias
    embedding = (raw - raw.mean(0)) / (raw.var(0, correction=0) + norm.eps).sqrt() + norm.bias
    torch.testing.assert_close(outputs["embedding"], embedding)
    torch.testing.assert_close(outputs["r"], embedding @ r.weight.T + r.bias)
    torch.testing.assert_close(outputs["z"], features @ z.weight.T + z.bias)


@pytest.mark.parametrize("reads", ["features", "embedding"])
def test_the_gradient_of_a_head_reaches_what_it_reads(reads):
    faces = network(r=HeadSpec(1, reads=reads))
    # The sum over a batch is the same for all weights before a BatchNorm.
    faces(torch.randn(5, 3, 112, 112, dtype=torch.float64))["r"].square().sum().backward()
    assert faces.trunk.weight.grad is not None
    assert bool(faces.trunk.weight.grad.all())
    assert (faces.embedding[0].weight.grad is not None) == (reads == "embedding")


def test_the_embedding_is_dropped_only_if_no_head_reads_it():
    faces = network(z=HeadSpec(2))
    images = torch.randn(5, 3, 112, 112, dtype=torch.float64)
    before = faces.eval()(images)
    faces.drop_embedding()
    after = faces(images)
    assert after["embedding"].shape == (5, 0)
    torch.testing.assert_close(after["z"], before["z"])
    with pytest.raises(AssertionError):
        network(r=HeadSpec(1, reads="embedding")).drop_embedding()
