"""A legal but unusual picture shows the same as its plain form."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from schemas.manifest import MediaLimits
from tests.unit.workers.media.pictures import (
    ADOBE_RGB,
    DISPLAY_P3,
    SRGB_D50,
    as_srgb,
    gif,
    icc,
    plain_tiff,
    png,
    png_chunk,
    saved,
    scene,
    tiff,
)  # fmt: skip
from workers.media import picture

SCENE = scene()
GREY = np.tile(np.arange(256, dtype=np.uint8), (16, 1))


def shown(data: bytes) -> NDArray[np.int16]:
    return picture.read(data, MediaLimits()).rgb.astype(np.int16)


def same(data: bytes, plain: NDArray[np.integer], tolerance: float = 0) -> None:
    rgb = shown(data)
    plain = plain if plain.ndim == 3 else np.repeat(plain[..., None], 3, axis=-1)
    assert rgb.shape == plain.shape
    assert np.abs(rgb - plain).max() <= tolerance


def on_white(rgb: NDArray[np.integer], alpha: NDArray[np.integer]) -> NDArray[np.floating]:
    share = alpha[..., None] / 255.0
    return rgb * share + 255 * (1 - share)


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_are_read_exactly(format: str) -> None:
    same(saved(Image.fromarray(SCENE), format), SCENE)


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {"quality": 95, "subsampling": 0}),
        ("JPEG", {"quality": 95, "subsampling": 0, "progressive": True}),
        ("WEBP", {"lossless": True}),
        ("AVIF", {"quality": 95}),
        ("JPEG2000", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ],
)
def test_every_format_and_way_of_compressing_shows_the_same_scene(format: str, options: dict[str, object]) -> None:
    assert np.abs(shown(saved(Image.fromarray(SCENE), format, **options)) - SCENE).mean() < 4


EXACTLY: dict[str, dict[str, object]] = {"WEBP": {"lossless": True}, "JPEG": {"quality": 98, "subsampling": 0}}
TURNED = {
    1: SCENE, 2: SCENE[:, ::-1], 3: SCENE[::-1, ::-1], 4: SCENE[::-1],
    5: SCENE.transpose(1, 0, 2), 6: SCENE.transpose(1, 0, 2)[::-1], 7: SCENE[::-1, ::-1].transpose(1, 0, 2),
    8: SCENE.transpose(1, 0, 2)[:, ::-1],
}  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF", "JPEG"])
def test_each_of_the_eight_orientations_is_turned_upright(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(TURNED[orientation])
    lossless: dict[str, object] = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95, "subsampling": 0}}.get(
        format, {}
    )
    rgb = shown(saved(stored, format, exif=exif.tobytes(), **lossless))
    assert rgb.shape == SCENE.shape
    assert np.abs(rgb - SCENE).mean() < (2 if format == "JPEG" else 0.01)


def test_broken_metadata_does_not_spoil_a_sound_picture() -> None:
    rubbish = [
        (b"eXIf", b"II*\0\xff\xff\xff\xff"),
        (b"iCCP", b"x\0\0rubbish"),
        (b"cHRM", bytes(32)),
        (b"gAMA", bytes(4)),
    ]
    for chunk in rubbish:
        same(png(SCENE, 8, 2, before=[chunk]), SCENE)
    same(saved(Image.fromarray(SCENE), "TIFF", icc_profile=b"no profile"), SCENE)


ALPHA = np.tile(np.linspace(0, 255, 48).astype(np.uint8), (32, 1))


@pytest.mark.parametrize(
    ("format", "options"), [("PNG", {}), ("WEBP", {"lossless": True, "exact": True}), ("TIFF", {})]
)
def test_alpha_shows_white_behind(format: str, options: dict[str, object]) -> None:
    rgba = np.concatenate([SCENE, ALPHA[..., None]], axis=-1)
    same(saved(Image.fromarray(rgba), format, **options), on_white(SCENE, ALPHA), 1)


def test_grey_with_alpha_shows_white_behind() -> None:
    grey = SCENE[..., 0]
    data = png(np.stack([grey, ALPHA], axis=-1), 8, 4)
    same(data, on_white(np.repeat(grey[..., None], 3, axis=-1), ALPHA), 1)


def test_premultiplied_alpha_of_a_tiff_shows_the_same() -> None:
    premultiplied = np.round(SCENE * (ALPHA[..., None] / 255.0)).astype(np.uint8)
    rows = np.concatenate([premultiplied, ALPHA[..., None]], axis=-1)
    same(plain_tiff("<", rows, [8] * 4, 2, t338=[1]), on_white(SCENE, ALPHA), 2)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_one_grey_of_a_png_may_be_transparent_at_any_depth(depth: int) -> None:
    top = (1 << depth) - 1
    samples = np.tile(np.arange(min(top + 1, 256)), (4, 1)) * max(1, top // 255)
    key = int(samples[0, 1])
    plain = np.where(samples == key, 255, samples * 255 // top)
    same(png(samples, depth, 0, before=[(b"tRNS", struct.pack(">H", key))]), plain)


@pytest.mark.parametrize("depth", [8, 16])
def test_one_colour_of_a_png_may_be_transparent_and_its_neighbours_are_not(depth: int) -> None:
    samples = np.zeros((2, 3, 3), int) + 0x40 * (0x101 if depth == 16 else 1)
    samples[0, 1, 2] += 1
    key = struct.pack(">3H", *samples[0, 0])
    rgb = shown(png(samples, depth, 2, before=[(b"tRNS", key)]))
    assert rgb[0, 0].tolist() == [255, 255, 255]
    assert rgb[0, 1, 0] == 0x40


def test_palettes_with_and_without_transparent_entries_show_their_colours() -> None:
    palette = np.array([[200, 10, 30], [10, 200, 30], [30, 10, 200], [90, 90, 90]], np.uint8)
    indices = np.arange(32).reshape(4, 8) % 4
    for depth in (2, 4, 8):
        same(png(indices, depth, 3, before=[(b"PLTE", palette.tobytes())]), palette[indices])
        data = png(indices, depth, 3, before=[(b"PLTE", palette.tobytes()), (b"tRNS", bytes([0, 128]))])
        alpha = np.array([0, 128, 255, 255], np.uint8)
        same(data, on_white(palette[indices], alpha[indices]), 1)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_greys_reach_from_black_to_white(depth: int) -> None:
    top = (1 << depth) - 1
    samples = np.tile(np.arange(top + 1), (4, 2))
    same(png(samples, depth, 0), samples * 255 // top)


DEEP = np.tile(np.linspace(0, 65535, 257).round().astype(np.uint16), (4, 1))


@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bits_are_scaled_not_clipped(order: str) -> None:
    plain = DEEP / 257
    deep_rgb = np.stack([DEEP, DEEP[:, ::-1], DEEP // 2], axis=-1)
    same(png(DEEP, 16, 0), plain, 1)
    same(png(deep_rgb, 16, 2), deep_rgb / 257, 1)
    same(plain_tiff(order, DEEP, [16], 1), plain, 1)
    same(plain_tiff(order, deep_rgb, [16] * 3, 2), deep_rgb / 257, 1)


def test_16_bits_with_alpha_show_white_behind() -> None:
    half = np.full_like(DEEP, 0x8080)
    same(
        png(np.stack([DEEP, half], axis=-1), 16, 4),
        on_white(np.stack([DEEP / 257] * 3, -1), np.full(DEEP.shape, 128)),
        2,
    )
    rgba = np.stack([DEEP, DEEP, DEEP, half], axis=-1)
    same(png(rgba, 16, 6), on_white(np.stack([DEEP / 257] * 3, -1), np.full(DEEP.shape, 128)), 2)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_tiff_whose_zero_is_white_is_turned_around(bits: int) -> None:
    rows = GREY if bits == 8 else GREY.astype(np.uint16) * 257
    same(plain_tiff("<", rows, [bits], 0), 255 - GREY)


def test_a_12_bit_tiff_fills_the_whole_range() -> None:
    samples = np.linspace(0, 4095, 64).round().astype(int)
    pairs = samples.reshape(-1, 2)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=-1)
    tags = {256: (3, [64]), 257: (3, [1]), 258: (3, [12]), 259: (3, [1]), 262: (3, [1]), 277: (3, [1]), 278: (3, [1])}
    same(tiff("<", tags, packed.astype(np.uint8).tobytes()), samples[None] * 255 / 4095, 1)


def test_interlaced_png_shows_the_same() -> None:
    """Written by hand: seven passes."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for x, y, step_x, step_y in passes:
        for row in SCENE[y::step_y, x::step_x]:
            raw += b"\0" + row.tobytes()
    header = struct.pack(">IIBBBBB", 48, 32, 8, 2, 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    same(b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks), SCENE)


@pytest.mark.parametrize(("gamma", "primaries"), [(2.2, DISPLAY_P3), (2.19921875, ADOBE_RGB), (1.0, SRGB_D50)])
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_an_embedded_profile_is_converted_to_srgb(
    format: str, gamma: float, primaries: Sequence[tuple[float, float, float]]
) -> None:
    muted = (SCENE // 2 + 64).astype(np.uint8)
    profile = icc(b"RGB ", gamma, primaries)
    data = saved(Image.fromarray(muted), format, icc_profile=profile, **EXACTLY.get(format, {}))
    plain = as_srgb(muted, gamma, primaries)
    assert np.abs(plain.astype(int) - muted).max() > 4, "it would look the same unconverted"
    assert np.abs(shown(data) - plain).mean() < (2 if format == "JPEG" else 0.8)


def test_a_profile_applies_to_colours_and_not_to_alpha() -> None:
    muted = (SCENE // 2 + 64).astype(np.uint8)
    rgba = Image.fromarray(np.concatenate([muted, ALPHA[..., None]], axis=-1))
    data = saved(rgba, "PNG", icc_profile=icc(b"RGB ", 2.2, DISPLAY_P3))
    assert np.abs(shown(data) - on_white(as_srgb(muted, 2.2, DISPLAY_P3), ALPHA)).mean() < 1


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF"])
def test_a_grey_profile_is_converted_and_an_rgb_profile_of_a_grey_picture_too(format: str) -> None:
    image, grey3 = Image.fromarray(GREY), np.repeat(GREY[..., None], 3, axis=-1)
    plain = as_srgb(grey3, 1.8, SRGB_D50)
    assert np.abs(shown(saved(image, format, icc_profile=icc(b"GRAY", 1.8))) - plain).mean() < 1.5
    assert np.abs(shown(saved(image, format, icc_profile=icc(b"RGB ", 1.8, SRGB_D50))) - plain).mean() < 1.5


def test_a_profile_of_another_space_is_left_aside() -> None:
    same(saved(Image.fromarray(SCENE), "PNG", icc_profile=icc(b"GRAY", 1.0)), SCENE)


def test_a_png_that_states_its_gamma_and_primaries_is_converted() -> None:
    muted = (SCENE // 2 + 64).astype(np.uint8)
    linear = png(muted, 8, 2, before=[(b"gAMA", struct.pack(">I", 100_000))])
    same(linear, as_srgb(muted, 1.0, SRGB_D50), 1)
    p3 = struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000)
    wide = png(muted, 8, 2, before=[(b"gAMA", struct.pack(">I", 100_000)), (b"cHRM", p3)])
    same(wide, as_srgb(muted, 1.0, DISPLAY_P3), 2)


def test_white_stays_white_whatever_white_the_primaries_are_of() -> None:
    d50 = struct.pack(">8I", 34570, 35850, 64000, 33000, 30000, 60000, 15000, 6000)
    same(png(GREY, 8, 0, before=[(b"gAMA", struct.pack(">I", 45455)), (b"cHRM", d50)]), GREY, 1)


def test_a_png_that_says_it_is_srgb_in_any_way_is_left_alone() -> None:
    usual = struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
    same(png(SCENE, 8, 2, before=[(b"gAMA", struct.pack(">I", 45455)), (b"cHRM", usual)]), SCENE)
    same(png(SCENE, 8, 2, before=[(b"sRGB", b"\0"), (b"gAMA", struct.pack(">I", 100_000))]), SCENE)


def test_cmyk_looks_like_its_colours_plain_or_inverted_by_adobe() -> None:
    cmyk = Image.fromarray(SCENE).convert("CMYK")
    adobe = saved(cmyk, "JPEG", quality=98, subsampling=0)  # Pillow writes Adobe's marker and inverted samples
    assert b"Adobe" in adobe
    assert np.abs(shown(adobe) - SCENE).mean() < 2
    same(saved(cmyk, "TIFF"), SCENE, 1)


def test_ycck_jpeg_looks_like_its_colours() -> None:
    """Chrominance stored as YCC: the same picture, with Adobe's marker saying so."""
    ycc = np.asarray(Image.fromarray(255 - SCENE).convert("YCbCr"))
    black = np.full((*ycc.shape[:2], 1), 255, np.uint8)  # inverted: no black
    plain = saved(Image.fromarray(255 - np.concatenate([ycc, black], -1), "CMYK"), "JPEG", quality=98, subsampling=0)
    at = plain.index(b"Adobe")
    ycck = plain[: at + 11] + b"\x02" + plain[at + 12 :]
    assert np.abs(shown(ycck) - SCENE).mean() < 2


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_lab_tiff_looks_like_its_colours() -> None:
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    muted = Image.fromarray((SCENE // 2 + 64).astype(np.uint8))
    lab = ImageCms.applyTransform(muted, to_lab)
    assert lab is not None
    assert np.abs(shown(saved(lab, "TIFF")) - np.asarray(muted)).mean() < 3


def test_ycbcr_tiff_looks_like_its_colours() -> None:
    same(saved(Image.fromarray(SCENE).convert("YCbCr"), "TIFF"), SCENE, 3)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "AVIF", "TIFF"])
def test_of_an_animation_or_of_pages_the_first_is_shown(format: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "green", "blue")]
    data = saved(frames[0], format, save_all=True, append_images=frames[1:])
    assert np.abs(shown(data) - (255, 0, 0)).max() < 4


def test_the_still_picture_of_an_animated_png_is_shown_though_the_animation_has_another() -> None:
    frames = [Image.new("RGB", (16, 16), "green"), Image.new("RGB", (16, 16), "blue")]
    data = saved(Image.new("RGB", (16, 16), "red"), "PNG", save_all=True, append_images=frames, default_image=True)
    same(data, np.broadcast_to(np.array([255, 0, 0]), (16, 16, 3)))


@pytest.mark.parametrize("key", [None, 0, 3])
def test_around_a_small_first_frame_of_a_gif_there_is_white(key: int | None) -> None:
    rgb = shown(gif(8, 6, (2, 1, 3, 2), [1, 2, 3, 3, 2, 1], key))
    blue = [255, 255, 255] if key == 3 else [0, 0, 255]
    assert rgb.shape == (6, 8, 3)
    assert rgb[1, 2:5].tolist() == [[255, 0, 0], [0, 255, 0], blue]
    assert rgb[0].tolist() == [[255, 255, 255]] * 8
    assert rgb[1, :2].tolist() == [[255, 255, 255]] * 2


def test_a_small_first_frame_of_an_animated_webp_has_white_around() -> None:
    frame = saved(Image.new("RGB", (4, 4), "red"), "WEBP", lossless=True)
    image_chunk = frame[12:]
    body = (0).to_bytes(3, "little") * 1 + (1).to_bytes(3, "little") + (3).to_bytes(3, "little") * 2
    body += (100).to_bytes(3, "little") + b"\0" + image_chunk
    anmf = b"ANMF" + struct.pack("<I", len(body)) + body
    canvas = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + (7).to_bytes(3, "little") * 2
    anim = b"ANIM" + struct.pack("<IIH", 6, 0xFF00FF00, 0)
    chunks = canvas + anim + anmf
    rgb = shown(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks)
    assert rgb[3, 2].tolist() == [255, 0, 0]
    assert rgb[0, 0].tolist() == [255, 255, 255]


def test_bilevel_and_text_chunks_of_any_size_are_no_obstacle() -> None:
    bits = np.indices((8, 8)).sum(axis=0) % 2
    same(saved(Image.fromarray(bits.astype(bool)), "TIFF", compression="group4"), bits * 255)
    bomb = b"Comment\0\0" + zlib.compress(bytes(30 << 20))
    same(png(SCENE, 8, 2, before=[(b"zTXt", bomb)]), SCENE)


def test_decoding_is_deterministic() -> None:
    data = saved(Image.fromarray(SCENE), "JPEG")
    assert (shown(data) == shown(data)).all()
    assert picture.read(data, MediaLimits()).rgb.dtype == np.uint8
