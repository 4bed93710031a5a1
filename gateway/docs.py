"""Pages for people: a start page and the documentation of both interfaces. Nothing is loaded from the internet."""

from litestar import MediaType, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.static_files import create_static_files_router
from swagger_ui_bundle import swagger_ui_path

from gateway import openapi
from gateway.asyncapi_page import AsyncApiPage
from schemas import codec

ASSETS = "/docs/assets"

_START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Triptych</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{color-scheme:light dark}body{font:16px/1.6 system-ui;max-width:40rem;margin:4rem auto;padding:0 1rem}
code{background:#8883}</style>
<h1>Triptych</h1>
<p>OpenAI's API for text, pictures and sound over an event pipeline. Point any OpenAI SDK at <code>/v1</code>.</p>
<ul>
<li><a href="/docs">Interactive documentation</a> (<a href="/openapi.json">openapi.json</a>)
<li><a href="/asyncapi">Topics</a>, for jobs of your own (<a href="/asyncapi.json">asyncapi.json</a>)
<li><a href="/v1/models">Models</a>
<li><a href="/readyz">Ready?</a>
<li><a href="/metrics">Metrics</a>
</ul>
"""

_DOCS = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Triptych API</title>
<link rel="icon" href="{ASSETS}/favicon-32x32.png"><link rel="stylesheet" href="{ASSETS}/swagger-ui.css">
<div id="ui"></div>
<script src="{ASSETS}/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({{url: "/openapi.json", dom_id: "#ui", deepLinking: true, tryItOutEnabled: true}})</script>
"""


def routes(topics: AsyncApiPage) -> list[HTTPRouteHandler | Router]:
    document = codec.to_json(openapi.document())

    @get("/", media_type=MediaType.HTML, sync_to_thread=False)
    def start() -> str:
        return _START

    @get("/docs", media_type=MediaType.HTML, sync_to_thread=False)
    def docs() -> str:
        return _DOCS

    @get("/openapi.json", sync_to_thread=False)
    def spec() -> Response[bytes]:
        return Response(document, media_type=MediaType.JSON)

    @get("/asyncapi", sync_to_thread=False)
    def topics_page() -> Response[str]:
        return Response(topics.html, media_type=MediaType.HTML, headers=topics.headers)

    @get("/asyncapi.json", sync_to_thread=False)
    def topics_spec() -> Response[bytes]:
        return Response(topics.document, media_type=MediaType.JSON)

    return [
        start,
        docs,
        spec,
        topics_page,
        topics_spec,
        create_static_files_router(path=ASSETS, directories=[swagger_ui_path]),
    ]
