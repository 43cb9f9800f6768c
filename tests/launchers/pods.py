# SPDX-License-Identifier: Apache-2.0
"""Runs the containers of a Kubernetes manifest as it stands on the hosts of a stage: their commands,
their variables and their secrets, as documented for Kubernetes. One host stands for one pod."""

import pathlib
import re
import secrets

import yaml

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
SECRETS = pathlib.Path("/run/secrets")


def manifests(path) -> dict[str, dict]:
    """The objects of a file, by kind."""
    objects = list(yaml.safe_load_all(pathlib.Path(path).read_text()))
    return {one["kind"]: one for one in objects}


def only_container(template: dict) -> dict:
    [container] = template["spec"]["containers"]
    return container


def expand(text: str, variables: dict[str, str]) -> str:
    """Replaces $(NAME), as Kubernetes does in commands and values. Leaves unknown names."""
    return REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)


def variables_of(container: dict, injected: dict[str, str], changes: dict[str, str]) -> dict[str, str]:
    """The variables of a container. changes: like `kubectl set env`, of variables that it has."""
    own: dict[str, str] = {}
    for item in container.get("env", []):
        assert isinstance(item["value"], str), f"{item['name']}: Kubernetes takes only strings"
        own[item["name"]] = expand(item["value"], own)
    unknown = changes.keys() - own.keys()
    assert not unknown, f"the container has no variable {unknown}"
    return own | changes | injected


def command_of(container: dict, variables: dict[str, str]) -> list[str]:
    return [expand(word, variables) for word in container["command"] + container.get("args", [])]


def mount_secrets(template: dict) -> None:
    """Writes a secret where the container has a volume with one."""
    volumes = {volume["name"]: volume["secret"] for volume in template["spec"].get("volumes", [])}
    for mount in only_container(template).get("volumeMounts", []):
        folder = pathlib.Path(mount["mountPath"])
        assert folder.is_relative_to(SECRETS), folder
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "secret"
        file.touch(volumes[mount["name"]]["defaultMode"])
        file.write_text(secrets.token_hex(32) + "\n")


def pod(host: str, template: dict, injected: dict[str, str], changes: dict[str, str]) -> list[str]:
    """The command that runs the only container of a pod on a host of the stage. Of the variables of
    the test the container gets none, but PATH and the mark of the run."""
    container = only_container(template)
    variables = variables_of(container, injected, changes)
    words = [f"{name}={value}" for name, value in variables.items()]
    # PATH is that of the image. The mark is for the test.
    start = 'hostname "$0"; exec env -i PATH="$PATH" HOME="$HOME" RONDO_TEST_LAUNCH="$RONDO_TEST_LAUNCH" "$@"'
    return ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", start, host, *words, *command_of(container, variables)]
