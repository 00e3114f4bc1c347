import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from pictures import encoded, picture, png
from PIL import Image

from runs import environment
from ssdg.data.sources import decode as decode_module
from ssdg.data.sources.decode import FORMATS, UnreadableError, decode, decode_whole, image_size


def huge_png(side):
    """A PNG whose header promises side x side pixels and whose data is nearly nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_png_is_exact_and_squashed_as_pillow_does():
    image = picture(3, 20, 10)
    expected = np.asarray(image.resize((8, 8), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(decode(encoded(image), 8), expected)


def test_no_resize_at_the_right_size():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    np.testing.assert_array_equal(decode(encoded(image), 8), np.asarray(image))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_plain_jpeg_is_what_pillow_sees(mode):
    data = encoded(picture(1, 40, 24).convert(mode), "JPEG", quality=95)
    from io import BytesIO

    expected = np.asarray(Image.open(BytesIO(data)).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    assert decode(data, 16).shape == (16, 16, 3)
    assert np.abs(decode(data, 16).astype(int) - expected).max() <= 2


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied(form):
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255  # white above black
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter clockwise to view
    got = decode(encoded(Image.fromarray(pixels), form, exif=exif), 16)
    assert got[:, 12:].mean() > 240
    assert got[:, :4].mean() < 15


def test_cmyk_jpeg():
    image = Image.new("RGB", (8, 8), (255, 0, 0)).convert("CMYK")
    assert np.abs(decode(encoded(image, "JPEG", quality=100), 8).astype(int) - [255, 0, 0]).max() < 20


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparency_lies_on_white(mode):
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 8, 4))
    form = image.quantize(4) if mode == "PA" else image.convert(mode)
    got = decode(encoded(form), 8)
    assert got[:4].max() == 0
    assert got[4:].min() == 255


def test_16_bit_grey_is_scaled():
    values = np.array([[0, 257, 32896, 65535]], np.uint16).repeat(4, 0)
    got = decode(encoded(Image.fromarray(values)), 4)
    assert got[0, :, 0].tolist() == [0, 1, 128, 255]


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data, 8)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("form", ["BMP", "TIFF", "PPM"])
def test_other_formats(form):
    image = picture(5, 8, 8)
    np.testing.assert_array_equal(decode(encoded(image, form), 8), np.asarray(image))


def test_black_and_white_becomes_rgb():
    assert set(np.unique(decode(encoded(Image.new("1", (4, 4), 1)), 4))) == {255}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"this is text", "not an image"),
        (encoded(picture(1, 200, 200), "JPEG")[:-400], "truncated"),
        (b"\xff\xd8\xff\xe0 garbage", "cannot be decoded"),
        (png(1)[:60], "decoded"),
        (huge_png(20_000), "100 million"),
        (huge_png(11_000), "100 million"),
    ],
    ids=["empty", "text", "truncated", "garbage", "cut", "bomb", "above-the-limit"],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_unreadable_files_have_one_line_reasons(data, message):
    with pytest.raises(UnreadableError, match=message) as caught:
        decode(data, 8)
    assert "\n" not in str(caught.value)


def test_huge_jpeg_is_refused_by_its_header():
    data = bytearray(encoded(picture(1), "JPEG"))
    at = data.index(b"\xff\xc0") + 5  # height and width of the frame header
    data[at : at + 4] = struct.pack(">HH", 30_000, 30_000)
    with pytest.raises(UnreadableError, match="30000x30000"):
        decode(bytes(data), 8)


def test_image_size_is_width_by_height():
    assert image_size(encoded(picture(1, 30, 20))) == (30, 20)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("data", [POSTSCRIPT, encoded(picture(1, 32, 32), "ICO"), encoded(picture(1), "PCX")])
def test_other_formats_of_pillow_are_not_tried(monkeypatch, data):
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(UnreadableError, match="known format"):
        decode(data, 8)
    with pytest.raises(UnreadableError):
        image_size(data)


@pytest.mark.parametrize("form", FORMATS)
def test_the_documented_formats_are_read(form):
    assert decode(encoded(picture(2), form), 8).shape == (8, 8, 3)


def jpegs():
    """Color and gray, all subsamplings, progressive, with restarts, in RGB, with XMP, CMYK; sizes off the grid."""
    simplejpeg = pytest.importorskip("simplejpeg")
    rng = np.random.default_rng(0)
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    for height, width in ((7, 5), (17, 31), (64, 48), (33, 100)):
        pixels = (np.asarray(picture(height, width, height)) // 2 + rng.integers(0, 128, (height, width, 3))).astype(
            "u1"
        )
        image = Image.fromarray(pixels)
        for sampling in ("444", "422", "420", "440", "411"):
            yield simplejpeg.encode_jpeg(pixels, quality=75, colorsubsampling=sampling)
        for options in ({}, {"restart_marker_blocks": 2}, {"keep_rgb": True}, {"xmp": xmp}, {"quality": 100}):
            yield encoded(image, "JPEG", **options)
        yield encoded(image.resize((100, 90)), "JPEG", progressive=True)
        yield encoded(image.convert("L"), "JPEG")
        yield encoded(image.convert("CMYK"), "JPEG")


def test_pillow_decodes_jpeg_to_the_bytes_of_simplejpeg(monkeypatch):
    data = list(jpegs())
    fast = [decode_whole(jpeg) for jpeg in data]
    monkeypatch.setattr(decode_module, "simplejpeg", None)
    assert len(data) == 52
    for jpeg, expected in zip(data, fast, strict=True):
        np.testing.assert_array_equal(decode_whole(jpeg), expected)


@pytest.mark.parametrize("has_simplejpeg", [True, False])
def test_a_truncated_jpeg_is_unreadable(monkeypatch, has_simplejpeg):
    if not has_simplejpeg:
        monkeypatch.setattr(decode_module, "simplejpeg", None)
    data = encoded(picture(1, 200, 200), "JPEG")
    with pytest.raises(UnreadableError, match="truncated"):
        decode(data[: len(data) // 2], 8)


def test_the_package_works_without_simplejpeg():
    code = (
        "import sys; sys.modules['simplejpeg'] = None\n"
        "from ssdg.data.sources.decode import decode\n"
        "print(decode(sys.stdin.buffer.read(), 8).shape)"
    )
    data = encoded(picture(1, 40, 24), "JPEG")
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, env=environment(), check=True
    )
    assert done.stdout == b"(8, 8, 3)\n"
