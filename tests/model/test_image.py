"""Every kind of image file becomes the right RGB pixels, and every broken one an ImageError."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from holotron.model.errors import ImageError
from holotron.model.image import load_image

RED = (255, 0, 0)


def encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def noise(width: int = 31, height: int = 22) -> Image.Image:
    values = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_of_size(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\x00" * 100)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


FILES = {
    "png": encoded(noise(), "PNG"),
    "png-palette": encoded(noise().quantize(17), "PNG"),
    "jpeg": encoded(noise(), "JPEG", quality=90),
    "jpeg-progressive": encoded(noise(), "JPEG", quality=90, progressive=True),
    "webp-lossless": encoded(noise(), "WEBP", lossless=True),
    "webp-lossy": encoded(noise(), "WEBP", quality=80),
    "gif": encoded(noise().quantize(64), "GIF"),
    "bmp": encoded(noise(), "BMP"),
    "tiff": encoded(noise(), "TIFF"),
    "tiff-lzw": encoded(noise(), "TIFF", compression="tiff_lzw"),
    "tiff-deflate": encoded(noise(), "TIFF", compression="tiff_adobe_deflate"),
}


# ---- where images come from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["png", "webp-lossless", "bmp", "tiff", "tiff-lzw", "tiff-deflate"])
def test_lossless_formats_keep_every_pixel(name: str) -> None:
    image = load_image(FILES[name])
    assert image.mode == "RGB"
    assert np.array_equal(np.asarray(image), np.asarray(noise()))


@pytest.mark.parametrize("name", ["jpeg", "jpeg-progressive", "webp-lossy"])
def test_lossy_formats_keep_a_flat_colour(name: str) -> None:
    image_format = name.split("-")[0].upper()
    flat = encoded(Image.new("RGB", (40, 30), (200, 100, 50)), image_format, quality=90, progressive="prog" in name)
    assert np.abs(np.asarray(load_image(flat)).astype(int) - (200, 100, 50)).max() <= 4


def test_source_may_be_a_path_a_string_bytes_or_an_image(tmp_path: Path) -> None:
    path = tmp_path / "screen.png"
    path.write_bytes(FILES["png"])
    expected = noise().tobytes()
    sources = (path, str(path), FILES["png"], bytearray(FILES["png"]), memoryview(FILES["png"]), noise())
    assert all(load_image(source).tobytes() == expected for source in sources)


def test_format_is_told_from_the_content_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "screen.jpg"
    path.write_bytes(FILES["png"])
    assert load_image(path).tobytes() == noise().tobytes()


def test_given_image_is_neither_returned_nor_changed() -> None:
    given = noise()
    result = load_image(given)
    result.putpixel((0, 0), (1, 2, 3))
    assert given.tobytes() == noise().tobytes()


def test_wrong_type_of_source_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not as int"):
        load_image(5)  # type: ignore[arg-type]


# ---- modes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "RGBa", "La"])
def test_alpha_is_composited_over_white(mode: str) -> None:
    plain = {"RGBA": "RGBA", "RGBa": "RGBA", "LA": "LA", "La": "LA", "PA": "PA"}[mode]
    black = Image.new(plain, (3, 1))
    if mode == "PA":
        black.putpalette([0, 0, 0])
    for x, alpha in enumerate((255, 0, 128)):
        black.putpixel((x, 0), (*(0,) * (len(black.getbands()) - 1), alpha))
    black = black if mode == plain else black.convert(mode)
    assert black.mode == mode
    pixels = np.asarray(load_image(black)).astype(int)[0]
    assert pixels[0].tolist() == [0, 0, 0]
    assert pixels[1].tolist() == [255, 255, 255]
    assert np.abs(pixels[2] - 127).max() <= 1


def test_palette_with_one_transparent_colour() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    image = load_image(encoded(palette, "PNG", transparency=1))
    assert [image.getpixel((0, 0)), image.getpixel((1, 0))] == [RED, (255, 255, 255)]


def test_palette_with_alpha_for_each_colour() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([0, 0, 0, 0, 0, 0])
    palette.putpixel((1, 0), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = load_image(encoded(palette, "PNG", transparency=bytes([255, 51])))
    assert [image.getpixel((0, 0)), image.getpixel((1, 0))] == [(0, 0, 0), (204, 204, 204)]


def test_transparent_colour_of_rgb_and_grey_png() -> None:
    colour = load_image(encoded(Image.new("RGB", (2, 2), RED), "PNG", transparency=RED))
    grey = load_image(encoded(Image.new("L", (2, 2), 9), "PNG", transparency=9))
    assert colour.getpixel((0, 0)) == grey.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("image_format", ["PNG", "GIF", "BMP", "TIFF"])
def test_palette_keeps_its_colours(image_format: str) -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, 0, 255, 0])
    palette.putpixel((1, 0), 1)
    image = load_image(encoded(palette, image_format))
    assert [image.getpixel((0, 0)), image.getpixel((1, 0))] == [RED, (0, 255, 0)]


@pytest.mark.parametrize("image_format", ["PNG", "BMP", "TIFF"])
def test_one_bit_becomes_black_and_white(image_format: str) -> None:
    bits = Image.new("1", (2, 1))
    bits.putpixel((1, 0), 1)
    image = load_image(encoded(bits, image_format))
    assert [image.getpixel((0, 0)), image.getpixel((1, 0))] == [(0, 0, 0), (255, 255, 255)]


def test_grey_stays_grey() -> None:
    assert load_image(encoded(Image.new("L", (2, 2), 77), "PNG")).getpixel((1, 1)) == (77, 77, 77)


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_not_clipped(image_format: str) -> None:
    deep = Image.fromarray(np.array([[0, 257, 32768, 65535]], dtype=np.uint16))
    assert deep.mode == "I;16"
    assert np.asarray(load_image(encoded(deep, image_format)))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_big_endian_sixteen_bit_grey() -> None:
    deep = Image.frombytes("I;16B", (3, 1), struct.pack(">HHH", 0, 32768, 65535))
    assert np.asarray(load_image(deep))[0, :, 2].tolist() == [0, 128, 255]


def test_transparent_value_of_sixteen_bit_grey() -> None:
    header = struct.pack(">IIBBBBB", 2, 1, 16, 0, 0, 0, 0)
    data = zlib.compress(b"\x00" + struct.pack(">HH", 1000, 0))
    chunks = [(b"IHDR", header), (b"tRNS", struct.pack(">H", 1000)), (b"IDAT", data), (b"IEND", b"")]
    image = load_image(b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks))
    assert np.asarray(image)[0, :, 0].tolist() == [255, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 128, 255], [0, 128, 255]),
        ([0, 32768, 65535], [0, 128, 255]),
        ([-100, 0, 100], [0, 128, 255]),
        ([0, 2**30, 2**31 - 1], [0, 128, 255]),
        ([5, 5, 5], [5, 5, 5]),
        ([-5, -5, -5], [0, 0, 0]),
    ],
)
def test_integers_are_scaled_by_their_range(values: list[int], expected: list[int]) -> None:
    deep = Image.fromarray(np.array([values], dtype=np.int32))
    assert deep.mode == "I"
    assert np.abs(np.asarray(load_image(deep))[0, :, 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 128.0, 255.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, float("nan"), 1.0], [0, 0, 255]),
        ([0.0, float("inf"), 1.0], [0, 255, 255]),
        ([float("nan")] * 3, [0, 0, 0]),
        ([-3e38, 0.0, 3e38], [0, 128, 255]),
    ],
)
def test_floats_are_scaled_by_their_range(values: list[float], expected: list[int]) -> None:
    deep = Image.fromarray(np.array([values], dtype=np.float32))
    for source in (deep, encoded(deep, "TIFF")):
        assert np.abs(np.asarray(load_image(source))[0, :, 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("image_format", ["JPEG", "TIFF"])
def test_red_stays_red_through_cmyk(image_format: str) -> None:
    cmyk = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), image_format)
    red, green, blue = load_image(cmyk).getpixel((8, 8))
    assert red >= 250
    assert max(green, blue) <= 5


@pytest.mark.parametrize("mode", ["YCbCr", "HSV", "CMYK", "LAB"])
def test_red_stays_red_through_other_colour_spaces(mode: str) -> None:
    red = Image.new("RGB", (4, 4), RED)
    if mode == "LAB":
        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        converted = ImageCms.profileToProfile(red, *profiles, outputMode="LAB")
    else:
        converted = red.convert(mode)
    assert converted is not None
    assert converted.mode == mode
    assert np.abs(np.array(load_image(converted).getpixel((0, 0))) - RED).max() <= 6


# ---- orientation and animation -----------------------------------------------------------------------------------

UPRIGHT = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8) * 40
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT),
    7: UPRIGHT[::-1, ::-1].T,
    8: np.rot90(UPRIGHT, -1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_undone(orientation: int, image_format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation])).convert("RGB")
    options = {"lossless": True} if image_format == "WEBP" else {}
    image = load_image(encoded(stored, image_format, exif=exif, **options))
    assert np.array_equal(np.asarray(image)[..., 0], UPRIGHT)


def test_jpeg_orientation_is_undone() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.new("RGB", (32, 64), "black")
    stored.paste((255, 255, 255), (0, 0, 32, 32))
    image = load_image(encoded(stored, "JPEG", exif=exif))
    assert image.size == (64, 32)
    assert image.getpixel((60, 16))[0] > 250
    assert image.getpixel((4, 16))[0] < 5


def test_sixteen_bit_grey_is_turned_too() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = Image.fromarray(np.ascontiguousarray(STORED[6]).astype(np.uint16) * 257)
    assert np.array_equal(np.asarray(load_image(encoded(deep, "PNG", exif=exif)))[..., 0], UPRIGHT)


@pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_first_frame_of_an_animation_is_taken(image_format: str) -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in (RED, "lime", "blue")]
    options = {"lossless": True} if image_format == "WEBP" else {}
    data = encoded(frames[0], image_format, save_all=True, append_images=frames[1:], **options)
    assert load_image(data).getpixel((3, 3)) == RED


# ---- what cannot be used -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"hello, this is no image at all", "not in a known image format"),
        (b"\x89PNG\r\n\x1a\n", "cannot be read"),
        (encoded(Image.new("RGB", (4, 4)), "PPM"), "known are PNG, JPEG"),
        (encoded(Image.new("RGB", (4, 4)), "ICO"), "known are PNG, JPEG"),
        (png_of_size(100_000, 100_000), "claims 100000×100000 pixels"),
        (png_of_size(2**31 - 1, 2**31 - 1), "claims 2147483647"),
        (png_of_size(40_000, 1), "claims 40000×1 pixels"),
        (png_of_size(8001, 8000), "claims 8001×8000"),
    ],
)
def test_unusable_bytes_are_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        load_image(data)


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_images_without_pixels_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match="no pixels"):
        load_image(Image.new("RGB", size))
    with pytest.raises(ImageError):
        load_image(png_of_size(*size))


def test_limit_holds_for_given_images_and_can_be_set() -> None:
    with pytest.raises(ImageError, match="at most 99 in all"):
        load_image(Image.new("RGB", (10, 10)), max_pixels=99)
    assert load_image(Image.new("RGB", (10, 10)), max_pixels=100).size == (10, 10)


@pytest.mark.parametrize("name", ["png", "jpeg", "webp-lossless", "gif", "bmp"])
def test_pillows_own_limit_says_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_image(FILES[name]).size == (31, 22)


def test_bad_paths_are_image_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.png", tmp_path, "nul\0byte.png", "data:image/png;base64," + "A" * 100_000):
        with pytest.raises(ImageError) as caught:
            load_image(path)
        assert len(str(caught.value)) < 1_000_000


def test_lazily_opened_truncated_image_is_refused() -> None:
    with pytest.raises(ImageError):
        load_image(Image.open(io.BytesIO(FILES["png"][:-100])))


@pytest.mark.filterwarnings("ignore")
def test_broken_exif_is_an_image_error_or_harmless() -> None:
    for exif in (
        b"Exif\x00\x00",
        b"Exif\x00\x00MM\x00*\xff\xff\xff\xff",
        b"Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff",
    ):
        data = encoded(Image.new("RGB", (16, 16), RED), "JPEG", exif=exif)
        with contextlib.suppress(ImageError):
            assert load_image(data).size == (16, 16)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore")
def test_truncated_files_decode_fully_or_not_at_all(name: str) -> None:
    data = FILES[name]
    whole = load_image(data).tobytes()
    cuts = sorted({*range(1, 80), *range(80, len(data), max(1, len(data) // 150)), *range(len(data) - 40, len(data))})
    refused = 0
    for cut in cuts:
        try:
            assert load_image(data[:cut]).tobytes() == whole, f"{name} cut at {cut} of {len(data)} was padded"
        except ImageError:
            refused += 1
    assert refused > len(cuts) // 2


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore")
def test_flipped_bytes_raise_nothing_but_image_errors(name: str) -> None:
    chance = random.Random(name)
    for _ in range(60):
        data = bytearray(FILES[name])
        for _ in range(chance.choice((1, 1, 2, 8, 40))):
            # Headers are where the interesting failures are.
            end = len(data) if chance.random() < 0.5 else min(len(data), 200)
            data[chance.randrange(end)] = chance.randrange(256)
        try:
            image = load_image(bytes(data))
        except ImageError:
            continue
        assert image.mode == "RGB"
        assert len(image.tobytes()) == 3 * image.width * image.height


def test_threads_do_not_disturb_each_other() -> None:
    expected = {name: load_image(data).tobytes() for name, data in FILES.items()}
    failures: list[str] = []

    def work(name: str) -> None:
        for _ in range(20):
            if load_image(FILES[name]).tobytes() != expected[name]:
                failures.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in FILES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
