"""The page in a real browser: hostile text does nothing, and nothing is wider than a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from synthetic_run import DEVICE, TASK, full_run, header

from kernelwright.interfaces.report.page import write_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on the path")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture
def asked():
    """A local server's address, and the paths that anybody asked it for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join(10)


def document(page, tmp_path, width=1280):
    """The page's document after it was loaded and its scripts, if it has any, were run."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    if not done.stdout:
        pytest.skip(f"the browser does not start here: {done.stderr.strip()[-200:]}")
    return done.stdout


def hostile(address):
    return (
        f"</pre></code></svg><script>document.title='owned'</script><img src={address}/image onerror=\"document.title='o'\">"
        f"<link rel=stylesheet href={address}/style><iframe src={address}/frame></iframe>" + "W" * 3000
    )


def test_hostile_text_does_nothing(tmp_path, asked):
    address, paths = asked
    text = hostile(address)
    bare = tmp_path / "bare.html"
    bare.write_text(f"<!doctype html><title>bare</title>{text}")
    assert re.search("<title>o", document(bare, tmp_path)), "unescaped, the text takes the page over"
    assert paths
    paths.clear()
    folder = full_run(tmp_path / "run", text)
    task = TASK.replace(name=text, notes=(text,), source=TASK.source.replace(text=text))
    (folder / "run.json").write_text(header(task=task, device=DEVICE.replace(name=text)).to_json())
    shown = document(write_page(folder, tmp_path / "report.html"), tmp_path)
    assert "<title>&lt;/pre&gt;" in shown and "<script" not in shown
    assert paths == []


# Headless windows are never narrower than about 500 pixels, so a phone is a frame in a window.
MEASURE = """<!doctype html><title>?</title>
<iframe id=f style="width:{width}px;height:800px;border:0" srcdoc="{page}"></iframe>
<script>
f.onload = () => {{
  const page = f.contentDocument.documentElement;
  document.title = page.scrollWidth + " of " + page.clientWidth;
}};
</script>"""


@pytest.mark.parametrize("width", [360, 390, 768])
@pytest.mark.parametrize("text", ["error: expected ';'", "unbroken" * 300])
def test_nothing_is_wider_than_the_screen(tmp_path, width, text):
    page = write_page(full_run(tmp_path / "run", text), tmp_path / "report.html").read_text(encoding="utf-8")
    wrapped = tmp_path / "frame.html"
    escaped = page.replace("&", "&amp;").replace('"', "&quot;")
    wrapped.write_text(MEASURE.format(width=width, page=escaped), encoding="utf-8")
    found = re.search(r"<title>(\d+) of (\d+)</title>", document(wrapped, tmp_path))
    assert found, "the frame was measured"
    assert int(found[1]) <= int(found[2]) == width
