"""Pictures into an MP4 file that every player and browser shows (H.264), there whole or not at all."""

import itertools
import logging
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.runs.files import check_name, new_file, os_errors, remove_temporaries

QUALITY = 7
"""Of 10; the encoder's own scale."""
logging.getLogger("imageio_ffmpeg").setLevel(logging.ERROR)
"""Its warning that the encoder stopped early, which is told better here, comes only now and then."""


def write_mp4(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float) -> int:
    """Write `frames`, (height, width, 3) each and all of one even size, to `path`; returns how many there were."""
    _check_encoder()
    check_name(path)
    with os_errors(f"write the video {path}", "free some space or choose another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(path.parent)
        with new_file(path) as temporary:
            temporary.touch()  # says more than the encoder about a folder that cannot be written to
            return _encode(temporary, frames, fps)


def _encode(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float) -> int:
    pictures = iter(frames)
    first = next(pictures)
    height, width, _ = first.shape
    encoder = imageio_ffmpeg.write_frames(
        path,
        (width, height),
        fps=fps,
        quality=QUALITY,
        codec="libx264",
        macro_block_size=2,
        ffmpeg_log_level="quiet",
        output_params=["-preset", "veryfast", "-f", "mp4", "-movflags", "+faststart"],
    )
    encoder.send(None)
    count = 0
    try:
        for picture in itertools.chain([first], pictures):
            _send(encoder, np.ascontiguousarray(picture))
            count += 1
    finally:
        encoder.close()
    if _frames_in(path) != count:
        raise _stopped()
    return count


def _check_encoder() -> None:
    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError:
        raise UsageError(
            "there is no ffmpeg to encode videos with; install imageio-ffmpeg again, or set IMAGEIO_FFMPEG_EXE to one"
        ) from None


def _send(encoder: Generator[None, Any, None], picture: NDArray[np.uint8]) -> None:
    try:
        encoder.send(picture)
    except OSError:  # its message is the encoder's whole command line
        raise _stopped() from None


def _frames_in(path: Path) -> int:
    """Pictures that can be read back: the encoder's own failures, such as a full disk at the end, are not told."""
    try:
        return int(imageio_ffmpeg.count_frames_and_secs(str(path))[0])
    except (OSError, RuntimeError, ValueError):
        return 0


def _stopped() -> OSError:
    return OSError("the encoder stopped early, as it does when the disk is full")
