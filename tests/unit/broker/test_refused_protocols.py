"""A client that asks for what no feature allows yet is named in the log, with the remedy, once an hour."""

import pytest

from ottla.broker.network.offenders import LINES_PER_WINDOW, WINDOW_SECONDS
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request import listed_apis
from ottla.broker.serving.refused_protocols import INTERVAL_SECONDS, MAX_CLIENTS, MAX_ID_CHARS, RefusedProtocols
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.end_txn import EndTxnRequest
from tests.support.connections import ClientConnection
from tests.support.handler_bench import HandlerBench, on_a_loop


class Stage:
    def __init__(self) -> None:
        self.now = 0.0
        self.refused = RefusedProtocols(lambda: self.now)

    def report(self, client_id: str = "c") -> None:
        client = ClientConnection().client
        client.identify(client_id.encode())
        self.refused.report(client, "END_TXN v5", "level 2 of the feature transaction.version")


def test_a_client_has_one_line_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for _ in range(3):
        stage.report()
    stage.report("other")
    stage.now = INTERVAL_SECONDS
    stage.report()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("client id ")[2].split(",")[0] for line in lines] == ["'c'", "'other'", "'c'"]
    assert lines[0].endswith("asked for END_TXN v5, which needs level 2 of the feature transaction.version: run `ottla features upgrade`")


def test_as_many_clients_as_there_is_room_for_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for number in range(MAX_CLIENTS + 1):
        stage.report(str(number))
    assert len(stage.refused._logged_at) == MAX_CLIENTS
    stage.now = WINDOW_SECONDS
    caplog.clear()
    stage.report(str(MAX_CLIENTS))
    assert not caplog.records
    stage.report("0")
    assert [record.getMessage().partition("client id ")[2].split(",")[0] for record in caplog.records][-1] == "'0'"


def test_a_host_has_a_few_lines_whatever_ids_its_clients_choose(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for number in range(20):
        stage.report(str(number))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "asked for" in line] == lines[:LINES_PER_WINDOW]
    (last,) = lines[LINES_PER_WINDOW:]
    assert "further lines like this are not shown" in last
    caplog.clear()
    stage.now = WINDOW_SECONDS
    stage.report("another")
    assert [" 15 more clients " in record.getMessage() for record in caplog.records] == [True, False]


def test_of_a_long_client_id_the_beginning_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for end in "ab":
        stage.report("x" * 30_000 + end)
    (line,) = [record.getMessage() for record in caplog.records]
    assert repr("x" * MAX_ID_CHARS) in line
    assert len(line) < 400
    assert [client_id for _, client_id in stage.refused._logged_at] == ["x" * MAX_ID_CHARS]


def test_a_request_for_it_closes_the_connection_without_counting_as_bad_input(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listed_apis, "OF_FEATURES", {("made.up", 1): {ApiKey.END_TXN: 5}})

    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        assert bench.ask(EndTxnRequest(), ApiKey.END_TXN, 5).control is CLOSE
        assert bench.connection.reasons == []
        bench.features.levels = {"made.up": 1}
        bench.services.listed.update()
        assert bench.dispatcher.route_of(ApiKey.END_TXN, 5) is not None
        assert bench.ask(EndTxnRequest(), ApiKey.END_TXN, 4).control is None
        bench.features.levels = {}
        bench.services.listed.update()
        assert bench.ask(EndTxnRequest(), ApiKey.END_TXN, 5).control is CLOSE
        assert bench.dispatcher.routes.keys() == {ApiKey.END_TXN << 16 | 4}

    scenario()
    assert [record.getMessage() for record in caplog.records if "END_TXN v5" in record.getMessage()] != []
