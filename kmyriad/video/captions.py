"""Words and colours on pictures: an agent's number in its colour, captions, pictures side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]
"""(height, width, 3)."""

PAPER, INK = (244, 244, 244), (38, 38, 38)
FRAME = 3
"""Pixels of colour around a picture."""


def labelled(picture: Picture, text: str, colour: str) -> Picture:
    """The same picture with a frame and a tag in the upper left corner, both in `colour`."""
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    size = max(12, min(18, image.height // 14))
    draw.rectangle((0, 0, image.width - 1, image.height - 1), outline=colour, width=FRAME)
    _tag(draw, (0, 0), text, colour, size)
    return np.asarray(image)


def legend(width: int, texts: Sequence[str], colours: Sequence[str]) -> Picture:
    """A strip with a tag of each colour, in as many rows as it takes, an even number of pixels high."""
    size, gap = 16, 6
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    places, x, y = [], gap, gap
    height = _tag_height(size)
    for text in texts:
        tag_width = _tag_width(measure, text, size)
        if x > gap and x + tag_width > width - gap:
            x, y = gap, y + height + gap
        places.append((x, y))
        x += tag_width + gap
    image = Image.new("RGB", (width, _even(y + height + gap)), PAPER)
    draw = ImageDraw.Draw(image)
    for place, text, colour in zip(places, texts, colours, strict=True):
        _tag(draw, place, text, colour, size)
    return np.asarray(image)


def titled(picture: Picture, text: str) -> Picture:
    """The picture under a line of text, which is cut where it is too long."""
    size, width = 20, picture.shape[1]
    image = Image.new("RGB", (width, 36), PAPER)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size)
    while text and draw.textlength(text, font) > width - 16:
        text = text.removesuffix("…")[:-1] + "…" if len(text) > 1 else ""
    draw.text((width / 2, image.height / 2), text, INK, font, anchor="mm")
    return np.concatenate([np.asarray(image), picture])


def tiled(pictures: Sequence[Picture], columns: int) -> Picture:
    """Pictures of one size row by row."""
    height, width, _ = pictures[0].shape
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows * height, columns * width, 3), PAPER, np.uint8)
    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    return sheet


def side_by_side(pictures: Sequence[Picture], gap: int = 8) -> Picture:
    """Pictures of any even sizes next to each other, at the top of a sheet as high as the highest."""
    height = max(len(picture) for picture in pictures)
    width = sum(picture.shape[1] for picture in pictures) + gap * (len(pictures) - 1)
    sheet = np.full((height, width, 3), PAPER, np.uint8)
    left = 0
    for picture in pictures:
        sheet[: len(picture), left : left + picture.shape[1]] = picture
        left += picture.shape[1] + gap
    return sheet


def resized(picture: Picture, width: int, height: int) -> Picture:
    """As large as fits, in the middle, without changing its proportions."""
    image = Image.fromarray(picture)
    scale = min(width / image.width, height / image.height)
    image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    sheet = Image.new("RGB", (width, height), PAPER)
    sheet.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
    return np.asarray(sheet)


def _tag(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, colour: str, size: int) -> None:
    x, y = place
    width, height = _tag_width(draw, text, size), _tag_height(size)
    draw.rectangle((x, y, x + width - 1, y + height - 1), fill=colour)
    red, green, blue = to_rgb(colour)
    ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
    draw.text((x + width / 2, y + height / 2), text, ink, ImageFont.load_default(size), anchor="mm")


def _tag_width(draw: ImageDraw.ImageDraw, text: str, size: int) -> int:
    return round(draw.textlength(text, ImageFont.load_default(size))) + size


def _tag_height(size: int) -> int:
    return round(1.4 * size)


def _even(number: int) -> int:
    return number + number % 2
