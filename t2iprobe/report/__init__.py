"""Tables, figures and the one-file HTML report."""

from pathlib import Path


def build(run_folder: Path) -> Path:
    """Write `report.html` and `figures/*.png` into a run folder from the tables that are there.

    Args:
        run_folder: a run folder whose stages up to `correlate` have written their files.

    Returns:
        The path of `report.html`.

    Raises:
        DataError: the folder is not a run folder, or a table is missing or malformed.
    """
    from t2iprobe.report.page import build_page  # matplotlib and jinja2 only when a page is made

    return build_page(run_folder)
