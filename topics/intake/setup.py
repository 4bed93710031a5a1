"""Media intake as the settings say."""

import ssl

from infra.clock import Clock
from infra.file_records import FileRecords
from infra.ports import Blobs
from infra.settings import Settings
from topics.intake.fetch import Fetcher, FetchLimits
from topics.intake.intake import Intake
from topics.intake.places import Places
from topics.intake.resolve import SystemResolver
from topics.intake.uploads import UploadLimits, Uploads


def from_settings(settings: Settings, blobs: Blobs, records: FileRecords, clock: Clock) -> Intake:
    """Close it at the end."""
    places = Places(settings.media_allow_http, settings.media_allow_hosts.split(","))
    fetch_limits = FetchLimits(settings.media_fetch_timeout_s, settings.media_max_redirects, settings.media_concurrency)
    upload_limits = UploadLimits(
        settings.max_file_bytes, settings.file_ttl_s, settings.upload_timeout_s, settings.media_concurrency
    )
    uploads = Uploads(blobs, records, clock, upload_limits)
    fetcher = Fetcher(places, SystemResolver(), fetch_limits, ssl.create_default_context())
    return Intake(blobs, fetcher, uploads)
