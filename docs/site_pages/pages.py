"""All pages that are written from the code."""

from __future__ import annotations

from pathlib import Path

from site_pages.api import api_page
from site_pages.cards import backends_page, gpus_page, models_page
from site_pages.commands import commands_page
from site_pages.examples import examples_page
from site_pages.fields import deployment_page, space_page, workload_page
from site_pages.metrics import metrics_page
from site_pages.outputs import files_page
from site_pages.plug_ins import catalogue_pages


def generated_pages(root: Path) -> dict[str, str]:
    """Returns Markdown by its place in the site, for the checkout at ``root``."""
    return {
        "reference/commands.md": commands_page(),
        "reference/deployment.md": deployment_page(),
        "reference/workload.md": workload_page(),
        "reference/space.md": space_page(),
        "reference/metrics.md": metrics_page(),
        "reference/files.md": files_page(),
        "reference/gpus.md": gpus_page(),
        "reference/models.md": models_page(),
        "reference/backends.md": backends_page(),
        **catalogue_pages(),
        "reference/api.md": api_page(),
        "reference/examples.md": examples_page(root),
        **_project_pages(root),
    }


def _project_pages(root: Path) -> dict[str, str]:
    """Returns pages of the checkout that stand outside ``docs/``, by their place in the site."""
    outside = {
        "project/architecture.md": "ARCHITECTURE.md",
        "project/changelog.md": "CHANGELOG.md",
        "project/kernel-table-data.md": "hardware_models/data/tables/README.md",
    }
    return {place: (root / path).read_text(encoding="utf-8") for place, path in outside.items()}
