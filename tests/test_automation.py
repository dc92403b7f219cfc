"""What runs on a fork without its author: valid files that name commands and paths which exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "STYLE.md", "CHANGELOG.md", "LICENSE-TEXT.md")]
TARGETS = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def jobs(path: Path) -> list[dict]:
    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values())


def scripts(path: Path) -> list[str]:
    return [step["run"] for job in jobs(path) for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
        ("vendor.github-issue-forms", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_follow_their_schema(schema, files):
    assert files
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_are_bash_that_parses(path):
    for script in scripts(path):
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        done = subprocess.run(["bash", "-n"], input=plain, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_commands_that_exist(path):
    for script in scripts(path):
        assert set(re.findall(r"\bmake ([\w./-]+)", script)) <= TARGETS
        for command in re.findall(r"python -m press (\w+)", script):
            done = subprocess.run([sys.executable, "-m", "press", command, "--help"], cwd=ROOT, capture_output=True)
            assert done.returncode == 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_take_no_more_rights_than_they_say_and_end(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    for script in scripts(path):
        assert "github.event" not in script  # what a stranger wrote must not become a command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_say_their_version(path):
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


def test_the_oldest_transformers_is_what_the_package_allows():
    """The test workflow reads it out of pyproject.toml with this expression."""
    (script,) = [s for s in scripts(ROOT / ".github" / "workflows" / "test.yml") if "transformers==" in s]
    expression = re.search(r"\$\((sed .*)\)", script)[1]
    found = subprocess.run(["bash", "-c", expression], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert re.fullmatch(r"\d+(\.\d+)*", found)


def test_the_container_is_valid_json_and_calls_what_exists():
    given = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert set(re.findall(r"make ([\w./-]+)", given["postCreateCommand"])) <= TARGETS


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_prose_names_commands_and_files_that_exist(path):
    text = path.read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, flags=re.S) for line in block.splitlines()]
    commands += re.findall(r"`([^`\n]+)`", text)
    named = {target for line in commands for target in re.findall(r"(?:^|&& )make ([\w./-]+)", line)}
    assert named <= TARGETS, named - TARGETS
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_pre_commit_runs_the_quick_checks():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make check"]
