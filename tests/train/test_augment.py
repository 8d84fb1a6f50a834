"""Screenshots on drawn canvases: pixels, points and letters move together, and nothing else does."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotron.actions.coordinates import Space
from holotron.env.placement import Placement
from holotron.episodes.examples import Example, ExampleTurn
from holotron.model.text.policy_tokenizer import policy_tokenizer
from holotron.suites.kit.variation import OFFSET_BAND, SIDE_BAND, ZOOM_BAND, is_held_out
from holotron.train import augment
from holotron.train.augment import Augment, AugmentConfig
from holotron.train.batches import BatchBudget, Packer
from holotron.train.loader import BatchStream
from holotron.train.loss import Coordinates
from holotron.train.ocr_loss import Letters
from holotron.train.recipe import DataSource, RecipeError, read_recipe
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, policy_writer, sample, write_store

SIZE, DOT = (60, 80), (41, 23)
TOKENIZER = policy_tokenizer(CONFIG)
WRITER = SequenceWriter(policy_writer(CONFIG))
AUGMENT = Augment(AugmentConfig(share=1.0), Coordinates.of(TOKENIZER).first_ids, 5)


@pytest.fixture(autouse=True)
def page_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests' pictures count as pages."""
    monkeypatch.setattr(augment, "LARGEST", 0)


def clicked(dot: tuple[int, int] = DOT) -> Example:
    """Two steps on a white screen with one black pixel, clicked at; the first question tells the point, too."""
    image = Image.new("RGB", SIZE, (255, 255, 255))
    image.putpixel(dot, (0, 0, 0))
    png = io.BytesIO()
    image.save(png, "PNG")
    x, y = Space("pixels", *SIZE).to_relative(*dot)
    click = f'{{"action":"click","x":{x},"y":{y}}}'
    turns = (ExampleTurn(f'What: {{"x":{x},"y":{y}}}', click, png.getvalue()), ExampleTurn("", click, png.getvalue()))
    return Example("dot", turns)


def test_a_point_is_moved_as_its_pixel_is() -> None:
    """Against plain arithmetic: paste the pixel, and name the one that shows it."""
    for placement in (Placement((60, 80)), Placement((97, 211), 13, 40), Placement((48, 70), -9, -4)):
        canvas = Space("pixels", *placement.size)
        for x in range(9, SIZE[0]):
            for y in (5, 40, 73):
                value = Space("pixels", *SIZE).to_relative(x, y)
                expected = x + placement.left, y + placement.top
                if not all(0 <= place < side for place, side in zip(expected, placement.size, strict=True)):
                    continue
                moved = placement.moved(0, value[0], SIZE), placement.moved(1, value[1], SIZE)
                assert canvas.from_relative(*moved) == expected
                assert placement.back(*expected, SIZE) == (x, y)


def test_a_zoomed_point_lies_in_what_the_pixel_became() -> None:
    placement = Placement((300, 333), 31, 17, zoom=1.85)
    width, height = placement.scaled(SIZE)
    assert (width, height) == (111, 148)
    for x in range(SIZE[0]):
        moved = placement.moved(0, Space("pixels", *SIZE).to_relative(x, 0)[0], SIZE)
        assert 31 + x * width / SIZE[0] - 0.5 <= moved * 300 / 1000 <= 31 + (x + 1) * width / SIZE[0] + 0.5
    assert placement.back(30, 100, SIZE) is None
    assert placement.back(31 + 111, 100, SIZE) is None


def test_all_steps_of_an_episode_get_one_placement_and_its_points_hit_the_dot() -> None:
    sizes, crops = set(), 0
    for number in range(60):
        [whole] = AUGMENT.apply((WRITER.write(clicked()),), f"{number}")
        first, second = whole.pictures
        placement = first.placement
        assert placement is not None
        assert placement == second.placement
        pixels = first.pixels()[0]
        assert pixels.shape[:2] == (first.size[1], first.size[0])
        for axis, start in enumerate(AUGMENT.first_ids):
            values = whole.token_ids[(whole.token_ids >= start) & (whole.token_ids <= start + 1000)] - start
            assert len(values) == 3
            assert len(set(values)) == 1, "questions, history and what is learned move alike"
            middle = ((DOT[axis] + 0.5) * placement.zoom) + (placement.left, placement.top)[axis]
            assert abs(values[0] * first.size[axis] / 1000 - middle) < 0.3 + placement.zoom / 2
        assert int((whole.token_ids == 5).sum()) == sum(picture.patches // 4 for picture in whole.pictures)
        Packer(CONFIG, BatchBudget(tokens=2048, patches=512, learned=256, sequences=4, images=4)).build([whole])
        plain = WRITER.write(clicked())
        assert whole.learn.sum() == plain.learn.sum()
        words = plain.token_ids[plain.token_ids != 5]
        coordinate = (words >= AUGMENT.first_ids[0]) & (words <= AUGMENT.first_ids[1] + 1000)
        assert (whole.token_ids[whole.token_ids != 5] == words)[~coordinate].all()
        sizes.add(first.size)
        crops += placement.left < 0 or placement.top < 0
    assert len(sizes) > 30
    assert 0 < crops < 30


def test_training_draws_no_held_out_canvas() -> None:
    for number in range(200):
        [whole] = AUGMENT.apply((WRITER.write(clicked()),), f"{number}")
        placement = whole.pictures[0].placement
        assert placement is not None
        if any(side < shown for side, shown in zip(placement.size, placement.scaled(SIZE), strict=True)):
            continue  # cropped
        assert not is_held_out(round(100 * placement.zoom), ZOOM_BAND)
        for side, corner, shown in zip(
            placement.size, (placement.left, placement.top), placement.scaled(SIZE), strict=True
        ):
            assert side == shown or not is_held_out(side, SIDE_BAND)
            assert not is_held_out(corner, OFFSET_BAND)


def test_letters_are_where_their_pixels_are() -> None:
    writing = {"words": [("ab", 30, (10, 50))], "unread": [(0.0, 60.0, 20.0, 70.0)]}
    letters = Letters.of(writing).placed(Placement((200, 200), 20, 8, zoom=2.0), SIZE)
    assert (letters.x.tolist(), letters.y.tolist()) == ([41, 121], [69, 69])
    assert letters.unread == ((20.0, 128.0, 60.0, 148.0),)


def test_samples_of_one_screen_share_it_still() -> None:
    one = WRITER.write(sample(0, steps=1))
    bunch = AUGMENT.apply((one, replace(one, kind="other")), "7")
    assert bunch[0].pictures[0] is bunch[1].pictures[0]
    assert bunch[0].pictures[0].placement is not None


def test_small_screens_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "LARGEST", max(SIZE))
    bunch = (WRITER.write(clicked()),)
    assert all(AUGMENT.apply(bunch, f"{number}") is bunch for number in range(20))


def test_a_stream_repeats_its_drawings_and_is_unchanged_without(tmp_path: Path) -> None:
    write_store(tmp_path / "store", 6)
    packer = Packer(CONFIG, BatchBudget(tokens=2048, patches=512, learned=256, sequences=8, images=16))
    plain = BatchStream((DataSource(store=str(tmp_path / "store")),), WRITER, packer, 0)
    drawn = [next(iter(replace(plain, augment=each))) for each in (AUGMENT, AUGMENT, None, None)]
    ids = [each[0].batch.token_ids_T.numpy() for each in drawn]
    assert np.array_equal(ids[0], ids[1])
    assert np.array_equal(ids[2], ids[3])
    assert not np.array_equal(ids[0], ids[2])


def test_a_recipe_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    for table, problem in (("share = 2.0", "share is 2"), ("crop = -1", "crop is"), ("tilt = 1", "tilt")):
        path.write_text(
            f'name = "x"\nstage = "navigation"\nstart = "x"\nsteps = 1\n[[data]]\nstore = "s"\n[augment]\n{table}\n'
        )
        with pytest.raises(RecipeError, match=problem):
            read_recipe(path)
