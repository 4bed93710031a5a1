"""How long each kind of object is kept, compared with those who need it."""

import re

import pytest

from gateway import delivery, transcripts
from infra import keys, retention, settings
from infra.retention import ARTIFACTS, kinds
from infra.settings import Settings, WrongSetting
from schemas.refs import payload_ref
from topics import names
from topics.fingerprints import artifact_key
from topics.intake import storing
from topics.intake.uploads import UPLOAD_URL_S

TTL_S = {one.prefix: one.ttl_s for one in kinds(Settings())}


def test_the_table_of_the_docstring_has_every_kind() -> None:
    assert re.findall(r"^\| ([a-z]+/)", retention.__doc__ or "", re.MULTILINE) == list(TTL_S)


@pytest.mark.parametrize(
    "key",
    [
        artifact_key("e", "d"),
        f"{storing.FOLDER}/d",
        payload_ref(b"").key,
        transcripts._key("audio_1"),
    ],
)
def test_what_is_written_is_of_a_kind(key: str) -> None:
    assert [one for one in TTL_S if key.startswith(one)]
    assert key.startswith(ARTIFACTS) == (key == artifact_key("e", "d"))


def test_everything_is_kept_for_longer_than_anybody_may_need_it() -> None:
    longest_s = Settings().max_deadline_s
    assert TTL_S["outputs/"] > longest_s + keys.STATE_TTL_MS / 1_000 + delivery.URL_EXPIRES_S
    assert TTL_S["transcripts/"] > transcripts.EXPIRES_S
    assert TTL_S["uploads/"] > Settings().file_ttl_s + UPLOAD_URL_S
    assert TTL_S["staging/"] > Settings().upload_timeout_s
    assert TTL_S["payloads/"] * 1_000 > names.DAY_MS
    letters = names.topics_for([])
    assert TTL_S["letters/"] * 1_000 > max(one.retention_ms for one in letters if one.name == names.DEAD_LETTERS)
    for prefix in ("media/", ARTIFACTS):  # found at half of their time, by a note that may be as old as that
        assert TTL_S[prefix] / 2 > Settings().file_ttl_s + longest_s + keys.NOTE_TTL_MS / 1_000


@pytest.mark.parametrize(
    ("name", "short", "enough"),
    [("TRIPTYCH_MEDIA_TTL_S", "194399", "194400"), ("TRIPTYCH_OUTPUT_TTL_S", "10799", "10800")],
)
def test_a_time_in_which_requests_would_lose_what_they_need_is_refused(name: str, short: str, enough: str) -> None:
    with pytest.raises(WrongSetting, match=f"{name}.*{enough}"):
        settings.load({name: short})
    settings.load({name: enough})


def test_files_that_live_longer_need_media_that_do() -> None:
    with pytest.raises(WrongSetting, match="TRIPTYCH_MEDIA_TTL_S"):
        settings.load({"TRIPTYCH_FILE_TTL_S": "2592000"})
