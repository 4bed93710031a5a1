"""Code that libraries load when a file first needs it. A decoding process has to have it before it is confined."""

import importlib

_MODULES = (
    "PIL.AvifImagePlugin", "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.Jpeg2KImagePlugin", "PIL.JpegImagePlugin",
    "PIL.MpoImagePlugin", "PIL.PngImagePlugin", "PIL.PpmImagePlugin", "PIL.TiffImagePlugin", "PIL.WebPImagePlugin",
    "av.subtitles.stream",
    "encodings.ascii", "encodings.latin_1", "encodings.utf_16", "encodings.utf_16_be", "encodings.utf_16_le",
)  # fmt: skip


def preload() -> None:
    for name in _MODULES:
        importlib.import_module(name)
