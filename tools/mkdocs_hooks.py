"""MkDocs hooks that adapt the pages, which are written for the repository, to the site."""

import posixpath
import re

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\w+),[\w,]+$", re.MULTILINE)


def on_page_markdown(markdown, page, config, files):
    """Points links to files outside docs/ to the repository, or turns them into plain text if no `repo_url` is set.

    Removes the rustdoc attributes of fences such as ```rust,no_run, which the site's highlighter cannot parse.
    """
    here = posixpath.dirname(page.file.src_uri)

    def link(match):
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join("docs", here, target))
        if path.startswith("docs/"):
            return match.group()
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{path}{anchor or ''})"
        return text

    return FENCE.sub(r"```\1", LINK.sub(link, markdown))
