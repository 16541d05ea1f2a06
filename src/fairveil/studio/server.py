"""Start the studio: a server on this machine only, and the browser."""

import secrets
import socket
import sys
import threading
import time
import webbrowser
from pathlib import Path

from fairveil._utils.errors import InputError

_HOST = "127.0.0.1"


def serve(file: Path | None = None, *, port: int = 0, open_browser: bool = True) -> None:
    """Serve one folder until interrupted. file: a table in it, or the folder itself; the current folder if None."""
    try:
        import uvicorn

        from fairveil.studio.app import make_app
    except ImportError:
        raise InputError("The studio needs two more packages: pip install 'fairveil[studio]'.") from None
    folder, chosen = _place(file)
    token = secrets.token_urlsafe(24)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError:
            raise InputError(f"Port {port} is in use. Name another one with --port.") from None
        listener.listen()  # a browser that is faster than the server waits
        bound = listener.getsockname()[1]
        app = make_app(folder, token=token, port=bound, chosen=chosen)
        address = f"http://{_HOST}:{bound}/?token={token}"
        sys.stderr.write(f"The studio for {folder} is at {address}\nThe link works once. Stop with Ctrl-C.\n")
        sys.stderr.flush()
        threading.Thread(target=_load, daemon=True).start()
        if open_browser:
            webbrowser.open(address)
        # No access log: it would repeat the token. Errors are logged without their text, which may show data.
        uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=5)).run(
            sockets=[listener]
        )


def _load() -> None:
    """Import what the first page needs while the browser opens, then what later pages need."""
    import fairveil.workflows.reading

    time.sleep(1.5)
    import fairveil.workflows.points
    import fairveil.workflows.preview  # noqa: F401


def _place(file: Path | None) -> tuple[Path, str | None]:
    """The folder to serve, and the name of the file in it that was asked for."""
    path = (Path.cwd() if file is None else file).absolute()
    if not path.exists():
        raise InputError(f"There is no file {file}.")
    return (path, None) if path.is_dir() else (path.parent, path.name)
