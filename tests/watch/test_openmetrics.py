"""The endpoint for Prometheus: what it exposes, bounded and escaped, and that Prometheus itself takes it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT

from grposcope.core.errors import UserError
from grposcope.logs import Hints
from grposcope.watch import serve
from grposcope.watch.follow import SHOWN, Watcher
from grposcope.watch.openmetrics import RunLevels, exposition, levels_of
from grposcope.watch.serve import Server, _LivePage

pytest.importorskip("prometheus_client", reason="the package prometheus_client (extra metrics) is not installed")

EXAMPLES = ROOT / "examples" / "grafana"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NAME = re.compile(r"\bgrposcope_[a-z_]+")
LABELS = ("grposcope_verdict", "grposcope_rule_status")  # of state sets: the label has the name of the metric


def row(step: int) -> dict[str, Any]:
    """A run whose entropy collapses at step 60 and whose reward stalls."""
    found = {"step": step, "reward": 0.3 + 0.01 * min(step, 20) + 0.01 * math.sin(7 * step), "kl": 0.01, "length": 90.0}
    found["entropy"] = (0.001 if step >= 60 else 0.8) * (1 + 0.01 * math.sin(9 * step))
    return found | ({"eval/accuracy": 0.5 + 0.02 * (step % 40 == 0)} if step % 20 == 0 else {})


@pytest.fixture
def watched(tmp_path: Path) -> Watcher:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row(step)) + "\n" for step in range(1, 121)))
    watcher = Watcher(path)
    watcher.look(time.time())
    return watcher


def samples(levels: RunLevels, now: float = 0.0) -> dict[tuple[str, ...], float]:
    """(name, label values …) -> value, by the client library's own parser of either format."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
    from prometheus_client.parser import text_string_to_metric_families as plain

    text, kind = exposition(levels, now, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    found = {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in strict(text.decode())
        for sample in family.samples
    }
    older, kind = exposition(levels, now)
    assert kind.startswith("text/plain")
    again = {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in plain(older.decode())
        for sample in family.samples
    }
    assert {key for key in found if not math.isnan(found[key])} == {key for key in again if not math.isnan(again[key])}
    return found


def test_what_a_run_exposes(watched: Watcher) -> None:
    levels = levels_of(watched, time.time())
    found = samples(levels, levels.changed + 12.5)
    assert found["grposcope_verdict", "failing"] == 1
    assert sum(value for key, value in found.items() if key[0] == "grposcope_verdict") == 1
    assert found["grposcope_verdict_cause_info", "entropy_collapse"] == 1
    assert found["grposcope_rule_status", "present", "entropy_collapse"] == 1
    assert found["grposcope_rule_status", "excluded", "entropy_collapse"] == 0
    assert found["grposcope_rule_severity", "entropy_collapse"] == 3
    assert found["grposcope_rule_severity", "length"] == 0
    assert 55 <= found["grposcope_rule_onset_step", "entropy_collapse"] <= 62
    assert found["grposcope_level", "reward"] == row(120)["reward"]
    assert found["grposcope_level", "kl"] == 0.01
    assert found["grposcope_heldout", "accuracy"] == pytest.approx(0.52)
    assert found[("grposcope_heldout_step",)] == 120
    assert found[("grposcope_rows_read",)] == found[("grposcope_step",)] == 120
    assert found[("grposcope_seconds_since_last_row",)] == pytest.approx(12.5)
    assert found[("grposcope_alarms_total",)] == 1
    assert found[("grposcope_readable",)] == 1
    assert found[("grposcope_ended",)] == found[("grposcope_stalled",)] == 0


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "later.jsonl")
    watcher.look(0.0)
    found = samples(levels_of(watcher, 0.0))
    assert found[("grposcope_rows_read",)] == 0
    assert ("grposcope_seconds_since_last_row",) not in found
    assert not any(key[0] == "grposcope_verdict" for key in found)


def test_names_are_escaped_and_their_number_is_bounded(tmp_path: Path) -> None:
    """However many keys a log has, and whatever they are called."""
    odd = 'a"b\\c{d}=\x1b[2J\u202e' + "x" * 500
    path = tmp_path / 'run "quoted" \\ back.jsonl'
    rows = [row(step) | {f"{odd}{k}": 1.0 * step for k in range(300)} | {f"eval/{odd}": 0.1} for step in range(1, 40)]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    watcher = Watcher(path)
    watcher.look(time.time())
    found = samples(levels_of(watcher, time.time()))
    assert len(found) < 200
    assert {key[1] for key in found if key[0] == "grposcope_level"} <= set(SHOWN)
    texts = [text for key in found for text in key]
    assert not any("\x1b" in text or "\u202e" in text for text in texts)
    assert any('run "quoted" \\ back.jsonl' in text for text in texts)
    assert max(map(len, texts)) < 150


@pytest.fixture
def server(watched: Watcher) -> Iterator[Server]:
    running = serve.serve(watched.path, Hints(), "0")
    levels = levels_of(watched, time.time())
    running.metrics = lambda accept: exposition(levels, time.time(), accept)
    yield running
    running.shutdown()


def got(url: str, **headers: str) -> tuple[str, str]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_it_is_served_beside_the_page(server: Server) -> None:
    text, kind = got(server.metrics_url, Accept=OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        got(server.metrics_url, Host="evil.example")


def test_another_address_takes_the_token_as_bearer(watched: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_is_loopback", lambda host: False)
    monkeypatch.setenv(serve.TOKEN, "0123456789abcdef+/")
    running = Server(_LivePage(watched.path, Hints()), "127.0.0.1", 0)
    running.metrics = lambda accept: exposition(RunLevels(), 0.0, accept)
    running.start()
    try:
        plain = running.metrics_url.partition("?")[0]
        assert "grposcope_step" in got(plain, Authorization="Bearer 0123456789abcdef+/")[0]
        assert "grposcope_step" in got(running.metrics_url)[0]
        for wrong in ("", "Bearer 0123456789abcdef", "Basic 0123456789abcdef+/"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                got(plain, Authorization=wrong)
    finally:
        running.shutdown()
    monkeypatch.setenv(serve.TOKEN, "short")
    with pytest.raises(UserError, match="GRPOSCOPE_TOKEN has 5 characters; give at least 16"):
        Server(_LivePage(watched.path, Hints()), "127.0.0.1", 0)


def test_the_dashboard_and_the_rules_use_names_that_exist(watched: Watcher) -> None:
    exposed = {key[0] for key in samples(levels_of(watched, time.time()))} | {"grposcope_steps_planned", *LABELS}
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0]["rules"]
    queries += [rule["expr"] for rule in rules]
    used = {name for query in queries for name in NAME.findall(query)}
    assert used <= exposed
    shown = {name for query in queries for name in re.findall(r'quantity="(\w+)"', query)}
    assert shown
    assert shown <= set(SHOWN)
    every = {name for name in exposed if name != "grposcope_run_info"} - {
        "grposcope_rule_status",
        "grposcope_heldout_step",
    }
    assert every <= used, "the dashboard leaves something out"


@pytest.mark.slow
def test_prometheus_scrapes_it_and_its_rules_fire(server: Server, tmp_path: Path) -> None:
    """A real Prometheus on this machine, with the example's configuration; promtool checks the rules."""
    prometheus, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if prometheus is None or promtool is None:
        pytest.skip("the programs prometheus and promtool are not installed (apt-get install prometheus)")
    rules = (EXAMPLES / "alerts.yml").read_text()
    assert "for: 5m" in rules
    checked = subprocess.run([promtool, "check", "rules", EXAMPLES / "alerts.yml"], capture_output=True, text=True,
                             check=False)  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "5 rules found" in checked.stdout
    (tmp_path / "alerts.yml").write_text(re.sub(r"for: \d+m", "for: 0s", rules))
    config = (EXAMPLES / "prometheus.yml").read_text().replace("127.0.0.1:8800", f"127.0.0.1:{server.server_port}")
    config = config.replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
    (tmp_path / "prometheus.yml").write_text(config)
    port = serve.serve(tmp_path / "free", Hints(), "0")
    free = port.server_port
    port.shutdown()
    port.server_close()
    running = subprocess.Popen(
        [prometheus, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{free}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        verdict = asked_of(free, "query?query=grposcope_verdict==1")
        assert [one["metric"]["grposcope_verdict"] for one in verdict["result"]] == ["failing"]
        (reward,) = asked_of(free, "query?query=grposcope_level{quantity='reward'}")["result"]
        assert float(reward["value"][1]) == row(120)["reward"]
        firing = asked_of(free, "query?query=ALERTS{alertstate='firing'}")["result"]
        assert {one["metric"]["alertname"] for one in firing} == {"RunIsFailing", "RuleIsFlagged"}
    finally:
        running.terminate()
        running.wait(20)


def asked_of(port: int, query: str) -> dict[str, Any]:
    """The answer of Prometheus, once there is any."""
    address = f"http://127.0.0.1:{port}/api/v1/" + query.replace("{", "%7B").replace("}", "%7D").replace("==", "%3D%3D")
    for _ in range(150):
        try:
            data: dict[str, Any] = json.loads(got(address)[0])["data"]
            if data["result"]:
                return data
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus has no answer to {query}")
