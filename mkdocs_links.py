"""The documents beside docs/ as pages of the site, and links that lead out of docs/.

On a page of the repository `../CHANGELOG.md` leads to that file; on the site it has a place among
the other pages. A file that is no document is read in the repository, whose address
`HIPQ_REPOSITORY_URL` gives; without one the words of such a link stay.
"""

import os
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
EVIDENCE = ("benchmarks.md", "crash-tests.md", "changelog.md")
"""Pages that a search shows after the others."""
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents that stand beside the folder."""
    for name in BESIDE:
        files.append(File.generated(config, name.lower(), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with links that lead to pages of the site."""
    if page.file.src_uri in EVIDENCE:
        page.meta["search"] = {"boost": 0.2}
    name = page.file.src_uri.upper().removesuffix(".MD") + ".md"
    source = name if name in BESIDE else f"docs/{page.file.src_uri}"

    def placed(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = normpath(str(PurePosixPath(source).parent / target))
        place = path.lower() if path in BESIDE else path.removeprefix("docs/")
        if files.get_file_from_path(place):
            return f"[{words}]({relpath(place, PurePosixPath(page.file.src_uri).parent)}{anchor})"
        repository = os.environ.get("HIPQ_REPOSITORY_URL", "").rstrip("/")
        return f"[{words}]({repository}/blob/main/{path}{anchor})" if repository else words

    return LINK.sub(placed, markdown)
