"""The live page's server: what it answers, to whom, and when it reads anew."""

from __future__ import annotations

import http.client
import json
import threading

import pytest

from grpo_ablate import live
from grpo_ablate.analysis import contents, report
from grpo_ablate.analysis.load import read_study
from grpo_ablate.commands import watch
from tests.made_up import study


@pytest.fixture
def served(tmp_path):
    study(tmp_path, arms=1, seeds=1)
    server = live.server(tmp_path, 0)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server, path, host=None, address="127.0.0.1"):
    connection = http.client.HTTPConnection(address, server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_it_listens_on_this_machine_only(served):
    assert served.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", None, 200),
        ("/data.json", "localhost", 200),
        ("/data.json", "elsewhere.example", 403),
        ("/../../etc/passwd", None, 404),
        ("/baseline/seed=1/config.yaml", None, 404),
    ],
)
def test_what_is_answered(served, path, host, status):
    assert ask(served, path, host)[0] == status


def test_the_data_is_the_reports(served, tmp_path):
    status, body = ask(served, "/data.json")
    found = report.build(read_study(tmp_path), None)
    assert (status, json.loads(body)) == (200, contents.gather(tmp_path, found) | {"live": True})


def test_it_reads_anew_only_what_has_changed(tmp_path, monkeypatch):
    study(tmp_path, arms=1, seeds=1)
    calls = []
    monkeypatch.setattr(contents, "gather", lambda folder, *given: calls.append(folder) or {})
    source = live.Source(tmp_path)
    source.data(), source.data()
    assert len(calls) == 1
    with (tmp_path / "baseline/seed=1/metrics.csv").open("a") as file:
        file.write("\n")
    source.data()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("argv", "told"),
    [(["nowhere"], "no runs under nowhere"), (["RUNS", "--port", "99999"], "is no port")],
)
def test_bad_input_is_told_of(tmp_path, capsys, argv, told):
    study(tmp_path, arms=1, seeds=1)
    assert watch.main([arg.replace("RUNS", str(tmp_path)) for arg in argv]) == 2
    assert told in capsys.readouterr().err


def test_a_taken_port_is_told_of(served, tmp_path, capsys):
    assert watch.main([str(tmp_path), "--port", str(served.server_port)]) == 2
    assert "choose another --port" in capsys.readouterr().err
