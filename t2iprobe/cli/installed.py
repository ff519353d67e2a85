"""Whether the libraries that are installed are those that the package asks for: pip lets people put older ones back."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version

from t2iprobe.errors import InstallError

EXTRAS = ("lora",)
"""Extras whose libraries diffusers imports wherever they are installed, so that an old one stops every run."""


def check_installed() -> None:
    """Refuse libraries that are missing or older than the package's own metadata asks for.

    The bounds are read from the metadata that pip installed, so that they stand in pyproject.toml alone. A package that
    is not installed but found on the path has none, and is not checked.

    Raises:
        InstallError: one line names every such library, what is installed, what is needed, and the pip command.
    """
    try:
        asked = requires("t2iprobe") or []
    except PackageNotFoundError:
        return
    unfit = misfits(asked)
    if unfit:
        found = "; ".join(f"{name} {has}, needed is {needed}" for name, has, needed in unfit)
        wanted = " ".join(f"'{name}{needed}'" for name, _, needed in unfit)
        raise InstallError(f"installed libraries do not fit: {found}; pip install {wanted}")


def misfits(asked: Iterable[str]) -> list[tuple[str, str, str]]:
    """Requirements that what is installed does not meet.

    Args:
        asked: as in a package's metadata, e.g. "torch>=2.6" or "peft>=0.18; extra == 'lora'".

    Returns:
        For each the name, the installed version or "is not installed", and the bound. Libraries of EXTRAS may be
        missing; those of other extras are not looked at. A pre-release of the bound meets it: vendors number their
        own builds of a release so (2.6.0a0+nv25.1).
    """
    from packaging.requirements import Requirement
    from packaging.version import Version

    unfit = []
    for requirement in map(Requirement, asked):
        marker = requirement.marker
        asks = [extra for extra in ("", *EXTRAS) if not marker or marker.evaluate({"extra": extra})]
        if not asks:
            continue
        try:
            has = version(requirement.name)
        except PackageNotFoundError:
            if asks[0] == "":
                unfit.append((requirement.name, "is not installed", str(requirement.specifier)))
            continue
        if not requirement.specifier.contains(Version(has).base_version):
            unfit.append((requirement.name, has, str(requirement.specifier)))
    return unfit
