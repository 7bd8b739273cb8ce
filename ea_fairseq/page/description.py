"""The API's description as a page of its own: FastAPI's would load scripts from the network."""

from __future__ import annotations

import json
from html import escape
from typing import Any


def description_page(schema: dict[str, Any]) -> str:
    """An HTML page of an OpenAPI schema: what can be asked for, with what, and what comes back."""
    info = schema["info"]
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(info['title'])}: API</title>",
        '<link rel="stylesheet" href="page.css"></head><body><main>',
        f"<h1>{escape(info['title'])}: API</h1><p>{escape(info['description'])}</p>",
        '<p>As OpenAPI: <a href="openapi.json">openapi.json</a></p>',
    ]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            lines.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            lines.append(f"<p>{escape(operation.get('description', ''))}</p>")
            if "requestBody" in operation:
                lines += ["<p>Body:</p>", _links(operation["requestBody"]["content"])]
            lines.append("<ul>")
            for status, response in operation["responses"].items():
                what = escape(response.get("description", ""))
                lines.append(
                    f"<li>{escape(status)}: {what} {_links(response.get('content', {}))}</li>"
                )
            lines.append("</ul>")
    lines.append("<h2>Objects</h2>")
    for name, model in schema["components"]["schemas"].items():
        lines.append(f'<h3 id="{escape(name)}">{escape(name)}</h3>')
        lines.append(f"<pre>{escape(json.dumps(model, indent=2, ensure_ascii=False))}</pre>")
    return "\n".join([*lines, "</main></body></html>"])


def _links(content: dict[str, Any]) -> str:
    """Links to the objects of each type of content."""
    found = []
    for kind, media in content.items():
        text = json.dumps(media.get("schema", {}))
        for part in text.split('"#/components/schemas/')[1:]:
            name = escape(part.split('"')[0])
            found.append(f'<code>{escape(kind)}</code> <a href="#{name}">{name}</a>')
    return ", ".join(found)
