"""Videos of a run: inside the page as long as it stays small, else links to the files."""

import base64
import os
from pathlib import Path
from urllib.parse import quote

from kmyriad.runs.run import Run


def find_videos(run: Run) -> list[Path]:
    """The *.mp4 files in the run's folder `videos`, by name."""
    return sorted((run.path / "videos").glob("*.mp4"))


def pack_video(path: Path, page: Path, room: int) -> dict[str, str]:
    """`source` is the video itself where it takes at most `room` letters, and `link` leads to it from `page` else."""
    name = path.name
    if 4 * path.stat().st_size / 3 + 100 <= room:
        return {"name": name, "source": f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"}
    relative = os.path.relpath(path.resolve(), page.resolve().parent)
    return {"name": name, "link": quote(Path(relative).as_posix(), errors="surrogateescape")}
