"""Images in the token stream: splicing, batching, and what cannot be."""

import pytest
import torch

from holotron.model.errors import ModelError
from holotron.model.tiling import ProcessedImage
from holotron.model.vision import pixel_shuffle

from .tiny import IMAGE_TOKEN, draw_tokens, tiny_model, tiny_vision


@pytest.fixture(scope="module")
def seeing():
    return tiny_model("M-*-", vision=tiny_vision())


def image(*grids, seed=0):
    count = sum(rows * columns for rows, columns in grids)
    patches = torch.randn(count, 48, generator=torch.Generator().manual_seed(seed))
    return ProcessedImage(patches=patches, grids=grids, tokens=count // 4, size=(1, 1))


def test_images_are_the_same_alone_and_in_company(seeing):
    """Batched by size with others or encoded alone: each image attends only to itself."""
    pictures = [image((2, 4), seed=1), image((4, 4), (2, 2), seed=2), image((2, 4), seed=3)]
    with torch.no_grad():
        together = seeing.encode_images(pictures)
        alone = [seeing.encode_images([picture])[0] for picture in pictures]
    assert [len(tokens) for tokens in together] == [picture.tokens for picture in pictures]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(together[0], together[2])


def test_embeddings_take_the_image_tokens_places_in_order(seeing):
    first, second = image((2, 2), seed=1), image((2, 4), seed=2)
    with torch.no_grad():
        a, b = seeing.encode_images([first, second])
        ids = torch.tensor([7, IMAGE_TOKEN, 8, IMAGE_TOKEN, IMAGE_TOKEN, 9])
        x = seeing.embed(ids, [a, b])
        table = seeing.decoder.embeddings.weight
    assert torch.equal(x[[0, 2, 5]], table[[7, 8, 9]])
    assert torch.equal(x[1], a[0])
    assert torch.equal(x[3:5], b)


def test_without_images_the_image_token_is_a_token(seeing):
    assert torch.equal(seeing.embed(torch.tensor([IMAGE_TOKEN])), seeing.decoder.embeddings.weight[[IMAGE_TOKEN]])


def test_the_image_token_may_lie_beyond_the_vocabulary(seeing):
    blind = tiny_model("M-*-", vision=tiny_vision(image_token_id=64))  # the vocabulary has 64
    with torch.no_grad():
        (tokens,) = blind.encode_images([image((2, 2))])
        assert torch.equal(blind.embed(torch.tensor([3, 64]), [tokens])[1], tokens[0])
    with pytest.raises(IndexError):
        blind.embed(torch.tensor([64]))


def test_an_image_changes_what_follows_and_nothing_before(seeing):
    before, after = draw_tokens(5, 1), draw_tokens(6, 2)
    ids = [*before, IMAGE_TOKEN, *after]
    with torch.no_grad():
        a, b = (seeing.score([ids], seeing.encode_images([image((2, 2), seed=s)]))[0] for s in (1, 2))
    assert torch.equal(a[:5], b[:5])
    assert (a[5:] - b[5:]).abs().amax(-1).min() > 1e-6


def test_counts_must_agree(seeing):
    with pytest.raises(ModelError, match="3 image tokens, but the images give 1"):
        seeing.embed(torch.tensor([IMAGE_TOKEN] * 3), seeing.encode_images([image((2, 2))]))
    with pytest.raises(ValueError, match="describe 8 patches, but 7 were given"):
        seeing.vision(torch.zeros(7, 48), [(2, 4)])
    with pytest.raises(ValueError, match="even sides"):
        pixel_shuffle(torch.zeros(6, 4), (3, 2))


def test_a_blind_model_says_so():
    with pytest.raises(ModelError, match="tiny has no vision tower"):
        tiny_model("M-").encode_images([image((2, 2))])


def test_pixel_shuffle_puts_squares_side_by_side():
    grid = torch.arange(4 * 6).view(-1, 1)  # value = row * 6 + column
    assert pixel_shuffle(grid, (4, 6))[0].tolist() == [0, 1, 6, 7]
    assert pixel_shuffle(grid, (4, 6))[2].tolist() == [4, 5, 10, 11]
    assert pixel_shuffle(grid, (4, 6))[3].tolist() == [12, 13, 18, 19]


def test_training_reaches_every_parameter():
    """Gradients flow through vision tower, projector, experts and scan from one loss."""
    model = tiny_model("ME*-", vision=tiny_vision()).train()
    ids = [*draw_tokens(9), IMAGE_TOKEN, IMAGE_TOKEN, *draw_tokens(8, 1)]
    (logits,) = model.score([ids], model.encode_images([image((2, 4))]))
    torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert without == []


def test_scoring_in_inference_mode_does_not_spoil_training():
    """Index tables are cached: those made without gradients must serve a training step of the same lengths."""
    model = tiny_model("M-*-").train()
    tokens = draw_tokens(11)
    with torch.inference_mode():
        model.score([tokens])
    (logits,) = model.score([tokens])
    logits.sum().backward()
    assert model.decoder.lm_head.weight.grad is not None
