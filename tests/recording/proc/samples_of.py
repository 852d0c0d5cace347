"""Where the sample state files are."""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "samples"
RELEASES = ("6.1", "6.12", "6.18", "7.2")


def sample(release: str, name: str) -> str:
    """Text of one state file as a kernel release prints it."""
    return (DIRECTORY / release / name).read_text(encoding="ascii")
